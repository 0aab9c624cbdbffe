"""Values and names in the text of Spark's SQL."""


def sql_text(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


def quote_name(name: str) -> str:
    """Quote a column's name for Spark's SQL, in which a dot would be a field's."""
    return f"`{name.replace('`', '``')}`"
