"""Text: records that are parsed each alone.

1. `text_table`  is the base of text formats.
2. `records`     cuts files into records, for which `quoting` finds the ends of values in quotes, and `documents` those of JSON;
                `csv_validation` checks the records.
3. `csv`, `json` and `lines` parse each record, into `parsed` columns. `numbers` defines numbers in text.
4. Of JSON, `json_keys` finds keys, and matches them with the schema.
"""
