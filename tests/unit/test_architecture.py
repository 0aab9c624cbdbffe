"""The page of the architecture shows the rooms and imports that the code has."""

import re

from architecture import DRAWING, PAGE, arrows, drawing, imported_rooms, page
from test_layers import LEVEL


def test_the_page_and_its_drawing_are_those_of_the_code() -> None:
    assert PAGE.read_text() == page(PAGE.read_text()), "run `make docs`"
    assert DRAWING.read_text() == drawing(), "run `make docs`"


def test_they_have_every_room_and_every_import_in_one_step_or_more() -> None:
    assert set(re.findall(r"<text [^>]*>([\w.]+)</text>", drawing())) == LEVEL.keys()
    assert [room for room in LEVEL if f"[`{room}`]" not in PAGE.read_text()] == []
    edges = arrows(imported_rooms())
    for room, targets in imported_rooms().items():
        below, look = set(), [room]
        while look:
            ways = {target for source, target in edges if source == look[0]} - below
            below |= ways
            look = [*look[1:], *ways]
        assert targets <= below


def test_an_import_is_left_out_of_the_drawing_where_a_longer_way_leads_there() -> None:
    assert arrows({"top": {"middle", "base"}, "middle": {"base"}, "base": set()}) == [("middle", "base"), ("top", "middle")]
