// Entropy coding of codes: nestcode/streams.
#include "arrays.hpp"

void add_streams(nb::module_&) {}
