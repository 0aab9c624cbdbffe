"""Colours and the style sheet of all pages and figures.

The colours are those of Okabe and Ito (2008), "Color universal design", which people with any common colour blindness tell apart, in
an order in which the first ones also differ in grey print.
"""

INK, GREY, PALE, LINE = "#1b1b1f", "#5c5f66", "#f4f5f7", "#d5d8dd"
BLUE, ORANGE, GREEN, RED, PURPLE, SKY, YELLOW, BLACK = (
    *("#0072b2", "#e69f00", "#009e73", "#d55e00", "#cc79a7", "#56b4e9", "#f0e442", "#000000"),
)
COLOURS = (BLUE, ORANGE, GREEN, RED, PURPLE, SKY, BLACK)
"""The colours of series, in this order; yellow is left out, since it is too pale for lines on white."""

SHEET = f"""
:root {{ color-scheme: light; }}
* {{ box-sizing: border-box; }}
body {{ margin: 0; background: #fff; color: {INK}; font: 16px/1.5 system-ui, -apple-system, "Segoe UI", Roboto, "DejaVu Sans", sans-serif;
  overflow-wrap: break-word; }}
main {{ max-width: 1480px; margin: 0 auto; padding: 20px clamp(12px, 3vw, 40px) 60px; }}
header {{ border-bottom: 3px solid {BLUE}; margin-bottom: 20px; padding-bottom: 12px; }}
h1 {{ font-size: 1.7rem; line-height: 1.2; margin: 0 0 4px; }}
h2 {{ font-size: 1.2rem; margin: 36px 0 10px; padding-bottom: 4px; border-bottom: 1px solid {LINE}; }}
h3 {{ font-size: 1rem; margin: 18px 0 6px; }}
p {{ margin: 6px 0; max-width: 75ch; }}
.lead, figcaption, .small {{ color: {GREY}; font-size: 0.88rem; }}
nav a {{ margin-right: 14px; }}
a {{ color: {BLUE}; }}
code, pre, td.code {{ font-family: ui-monospace, "DejaVu Sans Mono", Menlo, Consolas, monospace; font-size: 0.84em; }}
code {{ display: inline-block; max-width: 100%; overflow-x: auto; white-space: nowrap; vertical-align: bottom; }}
td code {{ max-width: none; }}
pre {{ background: {PALE}; padding: 10px 12px; overflow-x: auto; white-space: pre; border-radius: 4px; }}
.scroll {{ overflow-x: auto; margin: 8px 0; }}
table {{ border-collapse: collapse; font-size: 0.88rem; font-variant-numeric: tabular-nums; }}
.caption {{ color: {GREY}; font-size: 0.88rem; margin-top: 8px; max-width: 75ch; }}
th, td {{ text-align: left; padding: 4px 14px 4px 0; border-bottom: 1px solid {LINE}; vertical-align: top; }}
th {{ font-weight: 600; color: {GREY}; white-space: nowrap; }}
td.number, th.number {{ text-align: right; white-space: nowrap; }}
.facts td:first-child {{ min-width: 9em; }}
td img {{ image-rendering: pixelated; display: block; }}
.note {{ border-left: 4px solid {SKY}; background: {PALE}; padding: 6px 12px; margin: 8px 0; border-radius: 0 4px 4px 0; }}
.warning {{ border-left-color: {RED}; background: #fdf1ea; }}
.good {{ border-left-color: {GREEN}; background: #eef8f4; }}
.grid {{ display: grid; grid-template-columns: repeat(auto-fill, minmax(min(100%, 320px), 1fr)); gap: 18px 28px; align-items: start; }}
figure {{ margin: 0; min-width: 0; }}
figure svg, figure img {{ display: block; width: 100%; height: auto; }}
figcaption b {{ color: {INK}; }}
.tiles {{ display: grid; grid-template-columns: repeat(auto-fill, minmax(min(100%, 150px), 1fr)); gap: 10px; margin: 10px 0; }}
.tile {{ background: {PALE}; border-radius: 4px; padding: 8px 12px; }}
.tile b {{ display: block; font-size: 1.25rem; line-height: 1.3; }}
.tile span {{ color: {GREY}; font-size: 0.82rem; }}
details > summary {{ cursor: pointer; color: {BLUE}; margin: 8px 0; }}
@media (max-width: 600px) {{
  .facts > tbody > tr > td {{ display: block; border-bottom: 0; padding: 0; }}
  .facts > tbody > tr > td + td {{ border-bottom: 1px solid {LINE}; padding-bottom: 4px; margin-bottom: 4px; }}
  .facts, .facts > tbody, .facts > tbody > tr {{ display: block; }}
  .facts > tbody > tr > td > code {{ max-width: 100%; }}
}}
@media print {{ main {{ max-width: none; padding: 0; }} pre {{ white-space: pre-wrap; }} h2, figure, tr {{ break-inside: avoid; }} }}
"""
