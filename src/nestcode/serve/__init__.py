"""`nestcode serve`: an index and its streams over HTTP, and a page to explore them.

`service.py` is the service without HTTP, `app.py` its routes, `protocol.py` bounds what a connection occupies,
`guard.py` is the door, `budget.py` bounds the memory of bodies, `batching.py` runs concurrent searches together,
`writer.py` commits writes in groups, `bodies.py` and `schemas.py` read requests, `static/` is the page.
`nestcode.client` is the other side.
"""

from nestcode.errors import import_extra

for _module in ("fastapi", "msgspec", "prometheus_client", "uvicorn"):
    import_extra(_module, extra="serve", purpose="nestcode.serve")

from nestcode.serve.app import create_app  # noqa: E402
from nestcode.serve.items import Items  # noqa: E402
from nestcode.serve.limits import Limits  # noqa: E402
from nestcode.serve.server import in_thread  # noqa: E402
from nestcode.serve.service import Service  # noqa: E402

__all__ = ["Items", "Limits", "Service", "create_app", "in_thread"]
