"""The guided tour behind `nestcode demo`: real images, one page of pictures.

Each chapter is a file with one function that adds its section to the page and returns its figures.
"""

from nestcode.demo.tour import NEXT, run

__all__ = ["NEXT", "run"]
