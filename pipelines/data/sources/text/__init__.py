"""Text: records that are parsed each alone.

1. `text_table`  is the base of text formats, and has the one of lines.
2. `records`     cuts files into records, for which `quoting` finds the ends of values in quotes, and checks them.
3. `csv` and `json` parse each record, into `parsed` columns. `type_checks` defines numbers in text, and finds values that do not fit.
4. Of JSON, `json_keys` finds keys, and matches them with the schema.
"""
