// nestcode._core: the kernels of cpp/nestcode for Python. Nothing is decided in this folder.
#include "arrays.hpp"

NB_MODULE(_core, m) {
    m.doc() = "Kernels over packed bits. Use nestcode.Codes.";
    add_codes(m);
    add_index(m);
}
