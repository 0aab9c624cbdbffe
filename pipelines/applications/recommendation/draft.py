"""Drafts the task of ratings: tables of who rated what, whose features belong to one of the two."""

import re

from pipelines.data.features.auto.column_facts import ColumnFacts
from pipelines.init.tables.features_and_task import TableTask
from pipelines.init.tables.keys_and_groups import Roles, depends_on
from pipelines.init.tables.target import TargetChoice

_USER = re.compile(r"^(user|customer|member|reader|viewer|person|client|reviewer)(_?id)?$", re.IGNORECASE)
_ITEM = re.compile(r"^(item|movie|film|product|book|song|track|article|game|business|anime|joke)(_?id)?$", re.IGNORECASE)


def rating_sides(roles: Roles, target: TargetChoice) -> tuple[list[ColumnFacts], list[ColumnFacts]] | None:
    """The columns of the users and those of the items, the identifier of each first; None if the table has no ratings."""
    users = [column for column in roles.members if _USER.match(column.name)]
    items = [column for column in roles.members if _ITEM.match(column.name)]
    if target.kind != "number" or len(users) != 1 or len(items) != 1:
        return None
    other_features = [column for column in roles.features if column not in (users[0], items[0]) and column.kind != "moment"]
    user_features = [column for column in other_features if depends_on(column, users[0])]
    item_features = [column for column in other_features if column not in user_features and depends_on(column, items[0])]
    return [*users, *user_features], [*items, *item_features]


def ratings_task(roles: Roles, target: TargetChoice) -> TableTask | None:
    """Matrix factorization, if the table is one of ratings."""
    sides = None if target.further or roles.panel else rating_sides(roles, target)
    if sides is None:
        return None
    users, items = ([column.name for column in side] for side in sides)
    task = {"kind": "recommendation", "network": "factors", "user": users, "item": items, "width": 32, "dropout": 0.3}
    train = {"workers": 2, "epochs": 15, "global_batch": 512, "lr": 0.003, "weight_decay": 0.1, "schedule": "one_cycle"}
    columns = [column for side in sides for column in side]
    return TableTask(columns, "neither of the user nor of the item", task, train, "as conf/movielens.yaml has it")


TABLE_TASKS = (ratings_task,)
