// nestcode._core: the kernels of cpp/nestcode for Python. Nothing is decided in this folder.
#include "arrays.hpp"

NB_MODULE(_core, m) {
    nb::set_leak_warnings(false);  // what a program still holds when it ends is not ours to complain about
    m.doc() = "Kernels over packed bits. Use nestcode.Codes.";
    add_codes(m);
    add_index(m);
    add_pictures(m);
    add_search(m);
    add_streams(m);
}
