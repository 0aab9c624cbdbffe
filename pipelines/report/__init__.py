"""Figures and pages from what runs leave behind. A page is one HTML file that needs no network.

1. `evaluation` reads and writes the files of an evaluation; `figures` draws them.
2. `run_data`   gathers what a run left in MLflow and in its directory, and computes its events and its cost.
3. `run_page`   has the values of the page of a run, of `page_parts`: curves, figures and tables. `comparison` has those of the page of
                several: it says which is better, and whether that is chance. `folds_page` is that of a cross-validation, with the
                `fold_metrics` of its trainings, and `search_page` that of a search of settings.
4. `charts`     have axes and points of curves, and the colours; `templates/` hold the markup of all pages and charts.
5. `rendering`  has the values that a page shows in a form of their own, and fills templates in.
6. `filing`     files figures and page with the run. `command` is `jobs/report.py`, and `arguments` reads its command line.

`data_profile` is the page about the data of an ETL.
"""
