"""The commands: `jobs/NAME.py` and `lockstep NAME` run the same ones.

Each first reads its config, so that errors in it are reported at once, and only then imports what it calls.
"""

import argparse
import logging
import sys
from collections.abc import Callable, Mapping
from dataclasses import asdict
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Any, NoReturn

from pipelines.command_line import (
    check_flags_once,
    exit_on_error,
    log_to_stderr,
    read_config_and_output,
    read_config_argument,
    read_flags,
    speak_as,
    split_flags,
    split_output_flag,
)
from pipelines.errors import ConfigError

if TYPE_CHECKING:
    from pipelines.config import Config
    from pipelines.lifecycle.clean.cleaning import CleaningItem
    from pipelines.lifecycle.statements.checks import PartCheck

Command = Callable[[str, list[str]], None]
"""Takes the program's name, for its usage, and the arguments."""
_TEXT: Mapping[str, Any] = {"default": ""}
_SWITCH: Mapping[str, Any] = {"action": "store_true"}
_EXIT_CODE = "The exit code is 0, or that of the error that the first wrong line would be."
_TEXTS: Mapping[str, Any] = {"nargs": "*", "default": []}


def write_first_config(program: str, arguments: list[str]) -> None:
    """Write the first config of a pipeline, from nothing but its data."""
    parser = argparse.ArgumentParser(program, description=write_first_config.__doc__, allow_abbrev=False)
    parser.add_argument("data", metavar="DATA", help="a file or a folder")
    target = "the column to predict, or several of numbers with commas between; by default one is chosen, and printed"
    parser.add_argument("--target", default="", metavar="NAME", help=target)
    parser.add_argument("--output", default="", metavar="FILE", help="a new file; by default conf/NAME.yaml, with the name of the data")
    parser.add_argument("--no-rehearsal", action="store_true", help="do not try the config on a sample, which takes seconds")
    parser.add_argument("--skip-rows", type=int, metavar="N", help="lines of a table before the names of its columns; by default found out")
    budget = "also makes the dataset version, and searches better settings, for a time such as 10m or a number of epochs"
    parser.add_argument("--tune", default="", metavar="BUDGET", help=budget)
    check_flags_once(("--target", "--output", "--skip-rows", "--tune"), arguments)
    options = parser.parse_args(arguments)
    from pipelines.api import init
    from pipelines.init.draft import config_path

    draft = init(options.data, options.target, options.output, not options.no_rehearsal, options.skip_rows, options.tune)
    output = config_path(options.data, options.output)
    assumptions = [*draft.assumptions, *filter(None, [draft.left_out])]
    print("\n".join([*(f"assumed   {line}" for line in assumptions), f"written   {output}"]), flush=True)
    if options.tune:
        _search_draft(str(output))
        return
    print(f"next      lockstep etl {output} && lockstep train {output}")
    if "tune" in draft.sections:
        print(f"or        lockstep etl {output} && lockstep tune {output}, which searches better settings")


def _search_draft(path: str) -> None:
    """Make the dataset version of a drafted config, and run its search."""
    from pipelines.api import read_config, tune

    log_to_stderr(logging.INFO)
    config = read_config(path)
    _prepare(config)
    tune(config, path)
    _tell_page(config)


def demo(program: str, arguments: list[str]) -> None:
    """Train a first model in the current folder: 1,797 handwritten digits, from raw data."""
    if arguments in (["-h"], ["--help"]):
        print(f"usage: {program} [--section.setting VALUE ...]\n\n{demo.__doc__}")
        return
    from pipelines.demo.two_commands import run_demo

    run_demo(arguments)


def etl(program: str, arguments: list[str]) -> None:
    """Make a dataset version from raw tables; --from previous reads only the rows that came since."""
    arguments, output_flag = split_output_flag(arguments)
    options, config = read_flags(program, "[--from previous|VERSION]", {"--from": {"default": "", "dest": "parent"}}, arguments)
    speak_as(output_flag)
    _prepare(config, options.parent)
    _tell_page(config)


def _prepare(config: "Config", parent: str = "") -> None:
    """Make a dataset version, and tell of it."""
    from pipelines.api import prepare
    from pipelines.etl.summary import version_summary
    from pipelines.runtime.progress import tell

    began = datetime.now(UTC)
    manifest = prepare(config, parent)
    printed_fields = manifest.model_dump(mode="json", include={"version", "digest", "run_id", "quarantined", "parent"})
    rows = {split: summary.rows for split, summary in manifest.splits.items()}
    printed_fields |= {"path": f"{config.dataset.path}/{manifest.version}", "rows": rows, "is_new": manifest.created >= began}
    tell("result", version_summary(config, manifest), **printed_fields)


def train(program: str, arguments: list[str]) -> None:
    """Train a model on a dataset version, and log it in MLflow; with folds, a model for each. With --once, a finished run of it will do."""
    options, arguments = split_flags(program, "[--once]", {"--once": _SWITCH}, arguments)
    config = read_config_and_output(program, arguments, "[--once]")
    from pipelines.api import cross_validate, train
    from pipelines.config.dataset.dataset import FoldSplit

    if isinstance(config.dataset.split, FoldSplit) and config.train.fold is None:
        if options.once:
            logging.getLogger(__name__).warning("--once is left out of account: a cross-validation is made anew")
        cross_validate(config)
    elif not (options.once and _tell_finished_run(config)):
        train(config)
    _tell_page(config)


def _tell_finished_run(config: "Config") -> bool:
    """Tell of the finished run of the config on its dataset version, and return whether there is one."""
    from pipelines.launch.training_run import find_result
    from pipelines.runtime.progress import tell

    result = find_result(config)
    if result:
        tell("result", f"run {result.run_id} of experiment {config.experiment}\nmodel {result.model}", **asdict(result), is_new=False)
    return result is not None


def search_settings(program: str, arguments: list[str]) -> None:
    """Search the settings that `tune.space` names, and write the config of the best trial; the same command goes on after a kill."""
    arguments, output_flag = split_output_flag(arguments)
    options, config_arguments = split_flags(program, "[--output FILE.yaml]", {"--output": _TEXT}, arguments)
    config = read_config_argument(program, config_arguments, own_flags="[--output FILE.yaml]")
    speak_as(output_flag)
    from pipelines.tuning.space import check_search

    check_search(config, config_arguments[0])
    from pipelines.api import tune

    tune(config, config_arguments[0], options.output)
    _tell_page(config)


def verify(program: str, arguments: list[str]) -> None:
    """Train a finished run, or that of a statement, again, and compare bitwise: exit code 0 if it is identical, 1 if it differs."""
    flags = {"--run": _TEXT, "--steps": {"type": int}, "--statement": _TEXT, "--key": _TEXT, "--sign": _TEXT, "--model": _TEXT}
    flags |= {"--accept": _TEXTS, "--digests-only": _SWITCH, "--from-sources": _SWITCH}
    usage = (
        "--run RUN_ID [--steps FIRST_STEPS] | --statement FILE [--key PUBLIC.pem] [--sign PRIVATE.pem] [--model FOLDER] "
        "[--accept PART ...] [--digests-only] [--from-sources]"
    )
    arguments, output_flag = split_output_flag(arguments)
    options, config_arguments = split_flags(program, usage, flags, arguments)
    if options.statement and config_arguments not in (["-h"], ["--help"]):
        log_to_stderr(logging.WARNING)
        speak_as(output_flag)
        _verify_statement(program, options, config_arguments)
    config = read_config_argument(program, config_arguments, logging.WARNING, usage)
    if not options.run or (options.steps is not None and options.steps < 1):
        raise ConfigError(
            f"--run is {options.run!r} and --steps {options.steps}; the first names the run to verify, the second is at least 1"
        )
    speak_as(output_flag)
    from pipelines.api import verify

    sys.exit(not verify(config, options.run, options.steps))


def _verify_statement(program: str, options: argparse.Namespace, config_arguments: list[str]) -> NoReturn:
    if options.run or options.steps is not None:
        raise ConfigError("--run or --steps is given beside --statement, which names its own run; leave it out")
    config = read_config_argument(program, config_arguments, logging.WARNING) if config_arguments else None
    from pipelines.api import verify_statement
    from pipelines.runtime.progress import tell

    def tell_check(check: "PartCheck") -> None:
        tell("check", f"{check.name:14} {check.outcome:12} {check.text}", name=check.name, outcome=check.outcome, detail=check.text)

    own_flags = ("key", "sign", "model", "accept", "digests_only", "from_sources")
    verification = verify_statement(
        options.statement, config, tell_check=tell_check, **{name: getattr(options, name) for name in own_flags}
    )
    differences, signer = verification.differences, verification.signed_by
    text = f"differs: {', '.join(differences)}" if differences else f"right{f', and signed by key {signer[:12]}' if signer else ''}"
    tell("result", text, differs=differences, trained=verification.trained, accepted=verification.accepted, signed_by=signer)
    sys.exit(not verification.is_right)


def write_statement(program: str, arguments: list[str]) -> None:
    """Sign a statement of what a finished run was made from, or without --run a dataset version; or make the keys that sign."""
    flags = {"--run": _TEXT, "--key": _TEXT, "--output": _TEXT, "--documents": _TEXT, "--make-key": _TEXT, "--kind": {"default": "p256"}}
    usage = "[--run RUN_ID] --key PRIVATE.pem --output FILE [--documents FOLDER] | --make-key PRIVATE.pem [--kind p256|ed25519]"
    options, config_arguments = split_flags(program, usage, flags, arguments)
    if options.make_key:
        from pipelines.api import make_keys

        print(f"written   {options.make_key}, and its public key {make_keys(options.make_key, options.kind)}")
        return
    config = read_config_argument(program, config_arguments, logging.WARNING, usage)
    if not options.key or not options.output:
        raise ConfigError(f"--key is {options.key!r} and --output {options.output!r}; name the file of a private key, and one to write")
    from pipelines.api import attest

    attestation = attest(config, options.key, options.output, options.run, options.documents)
    print("\n".join(f"written   {path}" for path in (attestation.path, *attestation.documents)))
    print(f"signed    by key {attestation.key}")


def export(program: str, arguments: list[str]) -> None:
    """Write the model of a run for other software or hardware, and compare it on every test row."""
    from pipelines.config.serving import export_targets

    targets = export_targets()
    options, config = read_flags(program, f"--run RUN_ID --to {'|'.join(targets)}", {"--run": _TEXT, "--to": _TEXT}, arguments)
    if not options.run or options.to not in targets:
        raise ConfigError(f"--run is {options.run!r} and --to {options.to!r}; name a finished training, and one of {', '.join(targets)}")
    from pipelines.api import export

    export(config, options.run, options.to)
    _tell_page(config)


def baseline(program: str, arguments: list[str]) -> None:
    """Fit a model of Spark ML on a dataset version, by default a linear one, and log its metrics in the same experiment."""
    options, config = read_flags(program, "[--model linear|forest|boosting]", {"--model": {"default": "linear"}}, arguments)
    from pipelines.api import baseline

    print(", ".join(f"{name} {value:.4f}" for name, value in baseline(config, options.model).items()))
    _tell_page(config)


def predict(program: str, arguments: list[str]) -> None:
    """Predict the rows of files or tables with a model, with Spark."""
    usage = "--model URI [--input [TABLE=]PATH ...] --output FOLDER [--keep COLUMN ...]"
    flags = {"--model": _TEXT, "--input": _TEXTS, "--output": _TEXT, "--keep": _TEXTS}
    arguments, output_flag = split_output_flag(arguments)
    options, config = read_flags(program, usage, flags, arguments)
    if not options.model or not options.output:
        raise ConfigError(f"--model is {options.model!r} and --output {options.output!r}; give the URI of a model, models:/…, and a folder")
    speak_as(output_flag)
    from pipelines.api import predict
    from pipelines.runtime.progress import tell

    predictions = predict(config, options.model, options.output, options.input, options.keep)
    fields = predictions.model_dump(mode="json", include={"snapshot", "model", "model_digest", "rows_in", "rows_out", "refused"})
    tell("result", predictions.summary(options.output), **fields, output=options.output)
    _tell_page(config)


def promote(program: str, arguments: list[str]) -> None:
    """Make a run's model the champion if it passes the gates of the config, or roll back: exit code 8 if it does not."""
    flags = {"--run": _TEXT, "--rollback": _SWITCH}
    arguments, output_flag = split_output_flag(arguments)
    options, config = read_flags(program, "(--run RUN_ID | --rollback)", flags, arguments)
    if bool(options.run) == options.rollback:
        mistake = "both --run and --rollback are given" if options.run else "neither --run nor --rollback is given"
        raise ConfigError(f"{mistake}; give the ID of a run to promote, or --rollback")
    speak_as(output_flag)
    from pipelines.api import promote, rollback
    from pipelines.runtime.progress import tell

    promotion = rollback(config) if options.rollback else promote(config, options.run)
    tell("result", promotion.text, model=promotion.name, version=promotion.version, run_id=promotion.run_id, decision=promotion.text)
    _tell_page(config)


def report(program: str, arguments: list[str]) -> None:
    """Write the page of a run, or a comparison of several, as one HTML file."""
    from pipelines.report.arguments import read_arguments, usage

    if arguments in (["-h"], ["--help"]):
        print(f"{usage(program)}\n\n{report.__doc__} A YAML file alone stands for its newest run; beside IDs, it says where MLflow is.")
        return
    report_arguments = read_arguments(program, arguments)
    log_to_stderr(logging.WARNING)
    from pipelines.report.command import write_report

    print(write_report(report_arguments))


def show_changes(program: str, arguments: list[str]) -> None:
    """Say what changed between two dataset versions: exit code 0 if nothing did, 1 if something did, and more for an error."""
    remaining, output_flag = split_output_flag(arguments)
    parser = argparse.ArgumentParser(
        program, description=show_changes.__doc__, allow_abbrev=False, epilog="--json prints all numbers, --quiet nothing"
    )
    parser.add_argument(
        "before", metavar="A", help="the folder of a version, or of a dataset for its newest version; or a config's YAML file"
    )
    second = "another version, predictions, or raw rows in Parquet, CSV or JSON; by default, A's last two versions are compared"
    parser.add_argument("now", metavar="B", nargs="?", default="", help=second)
    parser.add_argument("--output", default="", metavar="FILE", help="an HTML page to write, with rows and charts")
    limits = {
        "psi": "population stability index from which a distribution differs (0.1)",
        "missing": "difference of the shares of missing values (0.01)",
        "chance": "probability that any column of equal distributions is named (0.01)",
    }
    for name, text in limits.items():
        parser.add_argument(f"--{name}", type=float, metavar="NUMBER", help=text)
    check_flags_once(("--output", *(f"--{name}" for name in limits)), remaining)
    options = parser.parse_args(remaining)
    log_to_stderr(logging.WARNING)
    speak_as(output_flag)
    from pipelines.api import diff
    from pipelines.diff.terminal_text import describe_changes
    from pipelines.runtime.progress import tell

    difference = diff(options.before, options.now, options.output, **{name: getattr(options, name) for name in limits})
    tell("result", describe_changes(difference), **difference.values(), page=options.output)
    sys.exit(not difference.is_empty)


def remove_old_versions(program: str, arguments: list[str]) -> None:
    """Remove dataset versions that nobody needs, by dataset.keep, and old checkpoints; without --yes, only say what would go."""
    arguments, output_flag = split_output_flag(arguments)
    flags = {"--yes": _SWITCH, "--dry-run": _SWITCH}
    options, config = read_flags(program, "[--yes | --dry-run]", flags, arguments, logging.WARNING)
    if options.yes and options.dry_run:
        raise ConfigError("--yes and --dry-run are given; the first removes, and the second, which is the default, only says what would go")
    speak_as(output_flag)
    from pipelines.api import clean
    from pipelines.lifecycle.clean.terminal_text import describe_cleaning, describe_item
    from pipelines.runtime.progress import tell

    def tell_item(item: "CleaningItem") -> None:
        tell("item", describe_item(item, not options.yes), **asdict(item))

    cleaning = clean(config, options.yes, tell_item)
    removed = [item.name for item in cleaning.items if item.goes and item.kind == "version"]
    tell("result", describe_cleaning(cleaning), dry_run=cleaning.is_dry_run, versions=removed, bytes=cleaning.bytes)


def erase_keys(program: str, arguments: list[str]) -> None:
    """Erase rows by their keys from every version of a dataset, and list the models that were trained on them; --yes does it."""
    usage = "[--key COLUMN=VALUE ...] [--grace TIME] [--predictions FOLDER ...] [--yes] | --check CERTIFICATE [--key COLUMN=VALUE ...]"
    arguments, output_flag = split_output_flag(arguments)
    flags = {"--key": {"action": "append", "default": []}, "--grace": _TEXT, "--yes": {"action": "store_true"}, "--check": _TEXT}
    options, config = read_flags(program, usage, {**flags, "--predictions": _TEXTS}, arguments, logging.WARNING)
    speak_as(output_flag)
    from pipelines.lifecycle.erasure.command import check_and_tell, erase_and_tell

    if options.check:
        check_and_tell(config, options.check, options.key)
    else:
        conf = next((argument for argument in arguments if argument.endswith((".yaml", ".yml"))), "CONF.yaml")
        erase_and_tell(config, options.key, options.grace, options.yes, options.predictions, conf)


def list_layouts(program: str, arguments: list[str]) -> None:
    """List the layouts with which a config trains on given machines: memory, seconds, hours and costs of each, and the best of them."""
    usage = "--hardware NAMExCOUNT[,…] [--deadline 4h] [--budget 200] [--layout degree=N,… --microbatch N --accumulation N] "
    usage += "[--measure] [--page PLAN.html] [--json]"
    numbers = ("--microbatch", "--accumulation", "--global-batch")
    flags = dict.fromkeys(("--hardware", "--model", "--layout", "--deadline"), _TEXT)
    flags |= {name: {"type": int, "default": 0} for name in numbers} | {
        name: {"type": float, "default": 0.0} for name in ("--rows", "--budget")
    }
    flags |= {"--measure": {"action": "store_true"}, "--page": _TEXT}
    arguments, output_flag = split_output_flag(arguments)
    options, config_arguments = split_flags(program, usage, flags, arguments)
    config = None
    if config_arguments or not options.model:
        config = read_config_argument(program, config_arguments, logging.WARNING, usage)
    speak_as("" if output_flag == "--json" else output_flag)
    from pipelines.api import plan
    from pipelines.planner.plan_text import plan_json, plan_text

    page = vars(options).pop("page")
    training_plan = plan(config, **vars(options))
    print(plan_json(training_plan) if output_flag == "--json" else plan_text(training_plan))
    if page:
        from pipelines.planner.plan_page import write_plan_page

        write_plan_page(training_plan, page)


def doctor(program: str, arguments: list[str]) -> None:
    """Examine this machine, and what a config needs: a line each, right or with its remedy."""
    config_arguments, output_flag = split_output_flag(arguments)
    if config_arguments in (["-h"], ["--help"]):
        print(f"usage: {program} [CONF.yaml] [--quiet | --json] [--section.setting VALUE ...]\n\n{doctor.__doc__}\n{_EXIT_CODE}")
        return
    config = read_config_argument(program, config_arguments, logging.WARNING) if config_arguments else None
    speak_as(output_flag)
    from pipelines.api import diagnose
    from pipelines.runtime.progress import tell

    wrong = []
    for line in diagnose(config):
        text = f"{line.name:10} {line.status:6} {line.text}"
        tell("check", text, name=line.name, status=line.status, detail=line.text, exit_code=line.exit_code)
        if line.status == "wrong":
            wrong.append(line)
            if output_flag == "--quiet":
                print(text, file=sys.stderr)
    tell("result", f"{len(wrong)} wrong" if wrong else "nothing is wrong", wrong=[line.name for line in wrong])
    sys.exit(wrong[0].exit_code if wrong else 0)


def _tell_page(config: "Config") -> None:
    """The last line of a command that has logged something: where MLflow shows it."""
    from pipelines.runtime.progress import tell
    from pipelines.tracking import browse_line

    if line := browse_line(config):
        tell("page", line, page=line.removeprefix("browse    "))


COMMANDS: dict[str, Command] = {
    "demo": demo,
    "init": write_first_config,
    "etl": etl,
    "train": train,
    "tune": search_settings,
    "verify": verify,
    "attest": write_statement,
    "export": export,
    "baseline": baseline,
    "promote": promote,
    "predict": predict,
    "report": report,
    "diff": show_changes,
    "clean": remove_old_versions,
    "erase": erase_keys,
    "plan": list_layouts,
    "doctor": doctor,
}


def run(name: str, program: str) -> None:
    """Run a command with this process's arguments, and exit with its exit code."""
    exit_on_error(partial(COMMANDS[name], program, sys.argv[1:]))


def main() -> None:
    """The console command `lockstep NAME CONF.yaml [--section.setting VALUE ...]`."""
    exit_on_error(partial(_run_command, sys.argv[1:]))


def _run_command(words: list[str]) -> None:
    name, arguments = (words[0], words[1:]) if words else ("", [])
    commands = "".join(f"\n  {command:10}{function.__doc__}" for command, function in COMMANDS.items())
    usage = f"usage: lockstep COMMAND CONF.yaml [--section.setting VALUE ...]\n{commands}"
    if name in ("-h", "--help"):
        print(
            f"{usage}\n\nA command's usual settings: lockstep COMMAND CONF.yaml --help; every setting: --help all\n"
            "etl, train, promote, predict and doctor: --quiet prints warnings and errors only, --verbose details,\n"
            "--json one JSON object a line"
        )
    elif name not in COMMANDS:
        raise ConfigError(f"{usage}\nlockstep: a command comes first (got {name or 'nothing'})")
    else:
        COMMANDS[name](f"lockstep {name}", arguments)
