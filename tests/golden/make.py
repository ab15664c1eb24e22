"""Makes the golden files anew; look at the difference before it is kept."""

from __future__ import annotations

import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent), str(HERE.parent.parent)]

from kimiaepd.service import plist, unit  # noqa: E402
from test_service_unit import ODD, PLAIN  # noqa: E402

for name, service in (("plain", PLAIN), ("odd", ODD)):
    (HERE / f"{name}.service").write_text(unit.render(service), encoding="utf-8")
    (HERE / f"{name}.plist").write_text(plist.render(service), encoding="utf-8")
