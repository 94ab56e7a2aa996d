// nestcode._core: the kernels of cpp/nestcode for Python. These files check arguments and convert arrays; the
// algorithms are in the headers.
#include "arrays.hpp"

NB_MODULE(_core, m) {
    nb::set_leak_warnings(false);  // objects that a program still holds at exit are not leaks of ours
    m.doc() = "C++ kernels of Nestcode; `_core.pyi` documents them.";
    add_codes(m);
    add_coders(m);
    add_storage(m);
    add_index(m);
    add_search(m);
    add_graph(m);
    add_vectors(m);
    add_row_search(m);
    add_streams(m);
    add_images(m);
}
