"""Write the script that draws the charts of reports: Vega, Vega-Lite and Vega-Embed, bundled by vl-convert.

    python scripts/write_vega.py

Run it after an upgrade of Altair or vl-convert-python. A page needs nothing else, and no network.
"""

from __future__ import annotations

from importlib import metadata

import vl_convert

from ggufspec.report.plot import drawing

_NOTICE = (
    "/* Vega, Vega-Lite and Vega-Embed, bundled by vl-convert-python {version} (scripts/write_vega.py).\n"
    "   Licence: BSD 3-clause, © University of Washington Interactive Data Lab. */\n"
)


def main() -> None:
    version = metadata.version("vl-convert-python")
    script = vl_convert.javascript_bundle("window.vegaEmbed = vegaEmbed;")
    drawing.SCRIPT.write_text(f"{_NOTICE.format(version=version)}{script}", encoding="utf-8")
    print(f"written: {drawing.SCRIPT}")


if __name__ == "__main__":
    main()
