"""The guided tour behind `nestcode demo`: real images, one page of pictures.

Each chapter is a file with one function that adds its section to the page and returns what it found, in one line.
"""

from nestcode.demo.tour import NEXT, Tour, run

__all__ = ["NEXT", "Tour", "run"]
