"""Drafts the config for a folder of recordings, or an archive of them."""

import math
from collections import Counter
from statistics import median

from pipelines.applications.speech.encoders import SoundHeader, read_sound_header
from pipelines.config.messages.words import verb_for
from pipelines.data.features.media_files import UnreadableError
from pipelines.errors import ConfigError
from pipelines.init.draft import Draft, Request
from pipelines.init.media.class_folders import Learning, batch_rows, draft_files, epochs_for, find_classes, train_rows
from pipelines.init.media.folder_contents import SampledFiles, find_file_table, list_contents

EPOCHS = ((20_000, 10), (1_000, 15), (300, 30), (0, 60))
MOST_SECONDS = 10.0
"""Of longer recordings, the beginning is used."""
MOST_UNREADABLE = 0.2
MEDIA_ENDINGS = (".wav",)
UNREADABLE = dict.fromkeys((".flac", ".mp3", ".ogg", ".m4a", ".aiff"), "the encoder log_mel reads WAV; convert the recordings to WAV")
"""What to do with other recordings, by the endings of their files."""
HOP_SECONDS = 0.01


def draft_recordings(request: Request) -> Draft | None:
    """Draft the config for WAV files in class folders, or with the class in their names. None if few of the files are recordings."""
    contents = list_contents(request.data)
    table = find_file_table(contents, "recordings", MEDIA_ENDINGS)
    if table is None:
        return None
    classes = find_classes(request.data, table.files)
    rate, lengths, refused = listen(request.data, table)
    longest = lengths[-(-99 * len(lengths) // 100) - 1]
    seconds = min(max(math.ceil(longest * 10) / 10, 0.1), MOST_SECONDS)
    rows = train_rows(classes.train_files or classes.files, classes.splits)
    frames = int(seconds / HOP_SECONDS)
    count = f"{len(refused)} of {len(table.sample)} recordings"
    are = verb_for(len(refused), "is no WAV file", "are no WAV files")
    assumptions = [f"{count} {are} of {rate:,} Hz, such as {name}: quarantined" for name in refused[:1]]
    if longest > MOST_SECONDS:
        assumptions.append(f"only the first {MOST_SECONDS:g} s of a recording are used; 1 in 100 has more than {longest:.0f} s")
    learning = Learning(
        "recording",
        "recording",
        {"encoder": "log_mel", "sample_rate": rate, "seconds": seconds, "mels": 40},
        f"the median length is {median(lengths):.2f} s, and 99 % have at most {longest:.2f} s",
        {
            "kind": "speech",
            "filters": [16, 32, 64],
            "dropout": 0.2,
            "shift_frames": min(10, frames // 8),
            "masked_frames": min(10, frames // 8),
            "masked_mels": 6,
        },
        {"workers": 2, "epochs": epochs_for(rows, EPOCHS), "global_batch": batch_rows(rows), "lr": 5e-3, "schedule": "one_cycle"},
        len(refused) / len(table.sample),
        tuple(assumptions),
    )
    return draft_files(request, contents, classes, table, "content", learning)


def listen(path: str, table: SampledFiles) -> tuple[int, list[float], list[str]]:
    """The sample rate of most recordings, their lengths in seconds, sorted, and the names of the others.

    Raises ConfigError if too many are no WAV files that the encoder reads, or have another sample rate."""
    sounds: dict[str, SoundHeader | str] = {}  # or why a file is refused
    for file in table.sample:
        try:
            sounds[file.name] = read_sound_header(table.read(file))
        except UnreadableError as error:
            sounds[file.name] = str(error)
    headers = {name: sound for name, sound in sounds.items() if isinstance(sound, SoundHeader)}
    rates = Counter(header.sample_rate for header in headers.values())
    rate = min(rates, key=lambda hertz: (-rates[hertz], hertz), default=0)
    refused = [name for name in sounds if name not in headers or headers[name].sample_rate != rate]
    if len(refused) > MOST_UNREADABLE * len(sounds):
        rates_text = ", ".join(f"{rates[hertz]} of {hertz:,} Hz" for hertz in sorted(rates))
        faults = [f"{name}: {sound}" for name, sound in sounds.items() if isinstance(sound, str)]
        raise ConfigError(
            f"{path}: of {len(sounds)} recordings, {len(faults)} are no WAV files that can be read"
            f"{f', and {rates_text}' if rates_text else ''}, such as {(faults or refused)[0]}; "
            "convert all of them to WAV of one sample rate"
        )
    return rate, sorted(header.seconds for header in headers.values() if header.sample_rate == rate), refused


DRAFTERS = (draft_recordings,)
