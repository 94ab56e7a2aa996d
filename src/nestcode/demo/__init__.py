"""The guided tour of `nestcode demo`: real images, one page.

Each chapter is a module with `TITLE` and `add_chapter`, which adds a section to the page and returns its result in one
line. In order: `stream`, `search`, `prefixes`, `ordering`, `bits`, `refined`. `tour.py` runs them, `widgets/` holds the
interactive parts of the page, `drawing.py` the figures that several chapters draw.
"""

from nestcode.demo.tour import NEXT, Tour, run

__all__ = ["NEXT", "Tour", "run"]
