// Nested bits of pictures: nestcode/coders/pictures.py.
#include "arrays.hpp"

void add_pictures(nb::module_&) {}
