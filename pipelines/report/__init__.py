"""Figures and pages from what runs leave behind. A page is one HTML file that needs no network.

1. `style`   has the colours and the style sheet of all pages and figures.
2. `page`    makes HTML: a page, its sections, tables, notes. Text is escaped, except what is already `Html`.
3. `charts`  draws curves with marks as inline SVG.
4. `evaluation` reads and writes the files of what an evaluation kept; `figures` draws them.
5. `run_data`   gathers what a run left in MLflow and in its directory.
6. `events`     finds what happened to a run, and `cost` what it cost.
7. `run_page`   is the page of a run: its `curves`, `pictures` and `tables`. `comparison` is the page of several: its `verdict` says which
                is better, and `better` computes whether that is chance.
8. `filing`     files figures and page with the run. `command` is `jobs/report.py`, `arguments` what it is asked.

`data_profile` is the page about the data of an ETL.
"""
