"""Figures and pages from what runs leave behind. A page is one HTML file that needs no network.

1. `style`   has the colours and the style sheet of all pages and figures.
2. `page`    makes HTML: a page, its sections, tables, notes. Text is escaped, except what is already `Html`.
3. `charts`  draws small charts as inline SVG: curves with marks, and bars.

`survey` is the page about the data of an ETL.
"""
