// nestcode._core: the kernels of cpp/nestcode for Python. These files check arguments and convert arrays; the
// algorithms are in the headers.
#include "arrays.hpp"
#include "nestcode/simd.hpp"
#include "nestcode/vector_rows.hpp"

// What only the core notices of the user's input: an instruction set, named in the environment, that the processor
// lacks; vectors that are not finite.
static void raise_invalid_input(const std::exception_ptr& thrown, void*) {
    const auto raise = [](const std::exception& error) {
        PyErr_SetString(nb::module_::import_("nestcode.errors").attr("InvalidInput").ptr(), error.what());
    };
    try {
        std::rethrow_exception(thrown);
    } catch (const nestcode::UnknownSimd& error) {
        raise(error);
    } catch (const nestcode::NotFinite& error) {
        raise(error);
    }
}

NB_MODULE(_core, m) {
    nb::set_leak_warnings(false);  // objects that a program still holds at exit are not leaks of ours
    m.doc() = "C++ kernels of Nestcode; `_core.pyi` documents them.";
    nb::register_exception_translator(raise_invalid_input);
    add_codes(m);
    add_coders(m);
    add_storage(m);
    add_index(m);
    add_search(m);
    add_graph(m);
    add_vectors(m);
    add_row_search(m);
    add_scan(m);
    add_streams(m);
    add_images(m);
}
