// Trees, forests and mapped memory: nestcode/index and nestcode/storage.py.
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>
#define NPY_NO_DEPRECATED_API NPY_2_0_API_VERSION
#include <numpy/ndarraytypes.h>

#include "arrays.hpp"
#include "nestcode/forest.hpp"

namespace {

// Memory of a file with the checksums of its blocks.
struct PyGuard {
    Vec<std::uint8_t> data;
    nestcode::Guard guard;

    PyGuard(Vec<std::uint8_t> memory, const Vec<std::uint64_t>& sums)
        : data(std::move(memory)), guard(data.data(), data.size(), checked(data, sums)) {}

  private:
    static const std::uint64_t* checked(const Vec<std::uint8_t>& data, const Vec<std::uint64_t>& sums) {
        if (sums.size() != nestcode::block_count(data.size()))
            throw nb::value_error("there must be a checksum for each block");
        return sums.data();
    }
};

// The guard of an array, which must watch that array and no other.
nestcode::Guard* guard_of(PyGuard* guard, const void* data, std::size_t bytes) {
    if (guard == nullptr) return nullptr;
    if (guard->data.size() != bytes || (bytes != 0 && static_cast<const void*>(guard->data.data()) != data))
        throw nb::value_error("a guard must watch the array it comes with");
    return &guard->guard;
}

template <class Scalar>
nestcode::Column<Scalar> column_of(const Vec<Scalar>& array, PyGuard* guard = nullptr) {
    return {array.data(), array.size(), guard_of(guard, array.data(), array.nbytes())};
}

// A tree with the arrays it looks at.
struct PyTree {
    nb::object owner;
    std::unique_ptr<nestcode::Removed> removed;
    nestcode::Tree tree;

    PyTree(nb::object owner, const Packed& rows, const Vec<std::uint64_t>& heads, const Vec<std::uint32_t>& order,
           const Vec<std::uint32_t>& tables, const Vec<std::uint32_t>& dead, const Vec<std::int64_t>& ids,
           std::int32_t width, PyGuard* rows_guard, PyGuard* heads_guard, PyGuard* tables_guard, PyGuard* ids_guard)
        : owner(std::move(owner)) {
        tree.rows = rows_of(rows);
        tree.rows_guard = guard_of(rows_guard, rows.data(), rows.shape(0) * rows.shape(1));
        tree.heads = column_of(heads, heads_guard);
        tree.order = column_of(order);
        tree.tables = column_of(tables, tables_guard);
        tree.ids = column_of(ids, ids_guard);
        tree.width = width;
        if (heads.size() >= UINT32_MAX) throw nb::value_error("a tree holds less than 2^32 items");
        if (order.size() != 0 ? order.size() != heads.size() : rows.shape(0) != heads.size())
            throw nb::value_error("there must be a head for each row or each place of the order");
        if (ids.size() < rows.shape(0)) throw nb::value_error("there must be an id for each row");
        if (tables.size() < nestcode::table_size(0)) throw nb::value_error("a tree needs its root's table");
        if (dead.size() > heads.size()) throw nb::value_error("no more items can be removed than there are");
        for (std::size_t i = 0; i < dead.size(); ++i)
            if (dead(i) >= heads.size() || (i > 0 && dead(i) <= dead(i - 1)))
                throw nb::value_error("removed places must be ascending, and within the tree");
        for (std::size_t i = 0; i < order.size(); ++i)
            if (order(i) >= rows.shape(0)) throw nb::value_error("an order's rows must be there");
        if (dead.size() != 0) {
            removed = std::make_unique<nestcode::Removed>(std::span(dead.data(), dead.size()), heads.size());
            tree.removed = removed.get();
        }
    }
};

struct PyForest {
    std::vector<nestcode::Tree> trees;
    std::vector<nb::object> owners;  // of the memory the trees look at
    bool guarded = false;
    std::size_t bytes;
    long width;

    PyForest(const std::vector<nb::object>& given, std::int32_t width)
        : owners(given), bytes((static_cast<std::size_t>(width) + 7) / 8), width(width) {
        for (const nb::object& object : given) {
            trees.push_back(nb::cast<PyTree&>(object).tree);
            const nestcode::Tree& tree = trees.back();
            if (tree.width != width || tree.rows.bytes != bytes) throw nb::value_error("trees must be as wide");
            guarded |= tree.rows_guard != nullptr;
        }
    }

    // Nothing that was read from a damaged block may leave the core.
    bool damaged() const {
        if (!guarded) return false;
        return std::any_of(trees.begin(), trees.end(), [](const nestcode::Tree& tree) {
            for (const nestcode::Guard* guard : {tree.rows_guard, tree.heads.guard, tree.tables.guard, tree.ids.guard})
                if (guard != nullptr && guard->damaged() >= 0) return true;
            return false;
        });
    }
};

struct PyNeighborhood {
    nb::object forest;
    nestcode::Neighborhood found;
    nestcode::Range only;                 // where it lies, if there is one tree: allocating takes longer than searching
    std::vector<nestcode::Range> ranges;  // if there are more

    PyNeighborhood(nb::object home, std::size_t trees) : forest(std::move(home)), ranges(trees > 1 ? trees : 0) {}

    PyNeighborhood(nb::object home, std::int32_t length, std::int64_t count, const Array<const std::uint32_t, 2>& rows)
        : PyNeighborhood(home, rows.shape(0)) {
        const auto& trees = nb::cast<PyForest&>(forest).trees;
        if (rows.shape(0) != trees.size() || rows.shape(1) != 2)
            throw nb::value_error("there must be a range for each tree");
        found = {length, count};
        for (std::size_t t = 0; t < trees.size(); ++t) {
            if (rows(t, 0) > rows(t, 1) || rows(t, 1) > trees[t].count())
                throw nb::value_error("a range must lie within its tree");
            where()[t] = {rows(t, 0), rows(t, 1)};
        }
    }

    nestcode::Range* where() { return ranges.empty() ? &only : ranges.data(); }
};

// The one code of a nestcode.Codes, or nothing. It is read from NumPy's array itself: a view of it, by the buffer
// protocol or DLPack, takes longer than the search.
class OneCode {
  public:
    OneCode(nb::handle codes, const PyForest& forest) {
        static PyObject* const packed_name = PyUnicode_InternFromString("_packed");
        static PyObject* const width_name = PyUnicode_InternFromString("_width");
        static PyObject* const array_type = nb::object(nb::module_::import_("numpy").attr("ndarray")).release().ptr();
        packed_ = nb::steal(PyObject_GetAttr(codes.ptr(), packed_name));
        const nb::object width = nb::steal(packed_.is_valid() ? PyObject_GetAttr(codes.ptr(), width_name) : nullptr);
        if (!width.is_valid()) {
            PyErr_Clear();
            return;
        }
        if (reinterpret_cast<PyObject*>(Py_TYPE(packed_.ptr())) != array_type || !PyLong_CheckExact(width.ptr()))
            return;
        const auto* const array = reinterpret_cast<PyArrayObject*>(packed_.ptr());
        fits_ = PyLong_AsLong(width.ptr()) == forest.width && PyArray_DESCR(array)->type_num == NPY_UINT8 &&
                PyArray_NDIM(array) == 2 && PyArray_DIM(array, 0) == 1 &&
                static_cast<std::size_t>(PyArray_DIM(array, 1)) == forest.bytes &&
                (forest.bytes < 2 || PyArray_STRIDE(array, 1) == 1);
    }

    bool fits() const { return fits_; }
    nestcode::Query query(std::size_t bytes) const {
        return {static_cast<const std::uint8_t*>(PyArray_DATA(reinterpret_cast<PyArrayObject*>(packed_.ptr()))), bytes};
    }

  private:
    nb::object packed_;
    bool fits_ = false;
};

// The quick way for one code and a size; everything else, errors too, is Python's.
nb::object neighborhood(nb::handle_t<PyForest> self, nb::handle query, nb::handle size, nb::handle fraction,
                        nb::handle threads) {
    if (!nb::inst_ready(self)) throw nb::value_error("this forest was not made");
    const PyForest& forest = *nb::inst_ptr<PyForest>(self);
    if (fraction.is_none() && PyLong_CheckExact(size.ptr())) {
        const Py_ssize_t least = PyLong_AsSsize_t(size.ptr());
        if (least < 0) PyErr_Clear();
        const OneCode code(query, forest);
        if (least > 0 && code.fits()) {
            PyNeighborhood hood(nb::borrow(self), forest.trees.size());
            const nestcode::Query one = code.query(forest.bytes);
            nestcode::find_neighborhoods(forest.trees, {&one, 1}, static_cast<std::uint64_t>(least), &hood.found,
                                         hood.where());
            if (!forest.damaged()) return nb::cast(std::move(hood));
        }
    }
    return self.attr("_neighborhood")(query, size, fraction, threads);
}

void find_neighborhoods(const PyForest& forest, const Packed& queries, std::uint64_t size,
                        const Array<std::int32_t, 1>& lengths, const Vector& counts,
                        const Array<std::uint32_t, 3>& ranges, std::size_t threads) {
    const std::size_t count = queries.shape(0);
    if (queries.shape(1) != forest.bytes) throw nb::value_error("queries must be as wide as the trees");
    if (size == 0) throw nb::value_error("a neighborhood has at least 1 member");
    if (lengths.shape(0) != count || counts.shape(0) != count || ranges.shape(0) != count ||
        ranges.shape(1) != forest.trees.size() || ranges.shape(2) != 2)
        throw nb::value_error("there must be a length, a count and ranges for each query");
    const nestcode::Rows rows = rows_of(queries);
    nb::gil_scoped_release released;
    nestcode::find_neighborhoods(forest.trees, rows, size, lengths.data(), counts.data(),
                                 reinterpret_cast<nestcode::Range*>(ranges.data()), threads);
}

void find_prefixes(const PyForest& forest, const Packed& query, const Vector& counts,
                   const Array<std::uint32_t, 3>& ranges) {
    if (query.shape(0) != 1 || query.shape(1) != forest.bytes)
        throw nb::value_error("there must be one query, as wide as the trees");
    if (ranges.shape(0) != counts.shape(0) || ranges.shape(1) != forest.trees.size() || ranges.shape(2) != 2 ||
        counts.shape(0) > static_cast<std::size_t>(forest.width) + 1)
        throw nb::value_error("there must be ranges for each length");
    const nestcode::Query one(query.data(), forest.bytes);
    auto* found = reinterpret_cast<nestcode::Range*>(ranges.data());
    for (std::size_t length = 0; length < counts.shape(0); ++length) {
        counts(length) = 0;
        for (const nestcode::Tree& tree : forest.trees) {
            *found = tree.find(one, static_cast<std::int32_t>(length));
            counts(length) += tree.alive(*found++);
        }
    }
}

void gather_ids(const PyForest& forest, PyNeighborhood& hood, const Vector& ids) {
    std::uint64_t alive = 0;
    for (std::size_t t = 0; t < forest.trees.size(); ++t) alive += forest.trees[t].alive(hood.where()[t]);
    if (hood.forest.ptr() != nb::find(&forest).ptr() || alive != ids.shape(0))
        throw nb::value_error("there must be room for each id of a neighborhood of this forest");
    nestcode::gather_ids(forest.trees, hood.where(), ids.data());
}

void merge(const PyForest& forest, const Array<std::uint8_t, 2>& rows, const Array<std::uint64_t, 1>& heads,
           const Vector& ids) {
    std::uint64_t alive = 0;
    for (const nestcode::Tree& tree : forest.trees) alive += tree.alive();
    if (rows.shape(0) != alive || rows.shape(1) != forest.bytes || heads.shape(0) != alive || ids.shape(0) != alive)
        throw nb::value_error("there must be room for each item");
    nb::gil_scoped_release released;
    nestcode::merge(forest.trees, rows.data(), heads.data(), ids.data());
}

void insert_rows(const Packed& packed, std::size_t first, const Vec<std::uint64_t>& heads,
                 const Vec<std::uint32_t>& order, const Array<std::uint64_t, 1>& new_heads,
                 const Array<std::uint32_t, 1>& new_order) {
    const nestcode::Rows rows = rows_of(packed);
    if (first > rows.count || heads.size() != order.size() || new_heads.size() != heads.size() + rows.count - first ||
        new_order.size() != new_heads.size())
        throw nb::value_error("there must be room for each row");
    for (std::size_t i = 0; i < order.size(); ++i)
        if (order(i) >= first) throw nb::value_error("an order's rows must be there");
    nestcode::insert_rows(rows, first, heads.data(), order.data(), heads.size(), new_heads.data(), new_order.data());
}

void find_ids(const Vec<std::int64_t>& ids, const Vec<std::uint32_t>& places, const Vec<std::int64_t>& wanted,
              const Vector& found, PyGuard* ids_guard, PyGuard* places_guard) {
    if (ids.size() != places.size() || wanted.size() != found.size())
        throw nb::value_error("there must be a place for each id");
    const auto known = column_of(ids, ids_guard);
    const auto by_id = column_of(places, places_guard);
    nb::gil_scoped_release released;
    nestcode::find_ids(known, by_id, wanted.data(), wanted.size(), found.data());
}

void load_heads(const Packed& packed, const Array<std::uint64_t, 1>& heads) {
    if (heads.size() != packed.shape(0)) throw nb::value_error("there must be a head for each row");
    const nestcode::Rows rows = rows_of(packed);
    for (std::size_t i = 0; i < rows.count; ++i) heads(i) = nestcode::load_ordered(rows[i], rows.bytes);
}

// A list of numbers as an array that owns them.
template <class Scalar>
nb::ndarray<nb::numpy, Scalar, nb::ndim<1>> array_of(std::vector<Scalar> numbers) {
    auto* const kept = new std::vector<Scalar>(std::move(numbers));
    const nb::capsule owner(kept, [](void* vector) noexcept { delete static_cast<std::vector<Scalar>*>(vector); });
    return {kept->data(), {kept->size()}, owner};
}

auto build_tables(const Vec<std::uint64_t>& heads, std::int32_t width) {
    std::vector<std::uint32_t> numbers;
    {
        nb::gil_scoped_release released;
        numbers = nestcode::build_tables(heads.data(), static_cast<std::uint32_t>(heads.size()), width);
    }
    return array_of(std::move(numbers));
}

auto block_sums(const Vec<std::uint8_t>& data) {
    std::vector<std::uint64_t> sums(nestcode::block_count(data.size()));
    {
        nb::gil_scoped_release released;
        for (std::size_t block = 0; block < sums.size(); ++block)
            sums[block] = nestcode::block_sum(data.data(), data.size(), block);
    }
    return array_of(std::move(sums));
}

}  // namespace

void add_index(nb::module_& m) {
    nb::class_<PyGuard>(m, "Guard", "Memory of a file, checked against its blocks' sums when it is first touched.")
        .def(nb::init<Vec<std::uint8_t>, const Vec<std::uint64_t>&>(), "data"_a.noconvert(), "sums"_a.noconvert())
        .def(
            "touch",
            [](PyGuard& self, std::size_t begin, std::size_t end) {
                if (begin > end || end > self.data.size()) throw nb::value_error("what is touched must be there");
                if (begin < end) self.guard.touch(self.data.data() + begin, end - begin);
            },
            "begin"_a, "end"_a, nb::call_guard<nb::gil_scoped_release>(), "Check the blocks of these bytes.")
        .def(
            "verify", [](PyGuard& self) { self.guard.verify(); }, nb::call_guard<nb::gil_scoped_release>(),
            "Check every block, also those that were touched before.")
        .def_prop_ro("damaged", [](const PyGuard& self) { return self.guard.damaged(); }, "A damaged block, or -1.");
    nb::class_<PyTree>(m, "Tree", "Sorted codes with their tables, and what was removed.")
        .def(nb::init<nb::object, const Packed&, const Vec<std::uint64_t>&, const Vec<std::uint32_t>&,
                      const Vec<std::uint32_t>&, const Vec<std::uint32_t>&, const Vec<std::int64_t>&, std::int32_t,
                      PyGuard*, PyGuard*, PyGuard*, PyGuard*>(),
             "owner"_a, "rows"_a.noconvert(), "heads"_a.noconvert(), "order"_a.noconvert(), "tables"_a.noconvert(),
             "dead"_a.noconvert(), "ids"_a.noconvert(), "width"_a, "rows_guard"_a.none() = nb::none(),
             "heads_guard"_a.none() = nb::none(), "tables_guard"_a.none() = nb::none(),
             "ids_guard"_a.none() = nb::none());
    nb::class_<PyForest>(m, "Forest", "Trees that are asked as one.")
        .def(nb::init<const std::vector<nb::object>&, std::int32_t>(), "trees"_a, "width"_a)
        .def("neighborhood", neighborhood, "query"_a, nb::kw_only(), "size"_a = nb::none(), "fraction"_a = nb::none(),
             "threads"_a.none() = 1, "The deepest neighborhood of a query with enough members.")
        .def("_find_neighborhoods", find_neighborhoods, "queries"_a.noconvert(), "size"_a, "lengths"_a.noconvert(),
             "counts"_a.noconvert(), "ranges"_a.noconvert(), "threads"_a = 1,
             "Write the length, the count and the ranges of each query's neighborhood.")
        .def("_find_prefixes", find_prefixes, "query"_a.noconvert(), "counts"_a.noconvert(), "ranges"_a.noconvert(),
             "Write the count and the ranges of each of a query's prefixes, shortest first.")
        .def("_gather_ids", gather_ids, "neighborhood"_a, "ids"_a.noconvert(), "Write the ids of a neighborhood.")
        .def("_merge", merge, "rows"_a.noconvert(), "heads"_a.noconvert(), "ids"_a.noconvert(),
             "Write all that was not removed, in order.")
        .def_prop_ro("_damaged", &PyForest::damaged, "Whether a damaged block was touched.");
    nb::class_<PyNeighborhood>(m, "Neighborhood", "All items that share their first bits with a query.")
        .def(nb::init<nb::object, std::int32_t, std::int64_t, const Array<const std::uint32_t, 2>&>(), "forest"_a,
             "length"_a, "count"_a, "ranges"_a.noconvert())
        .def_prop_ro(
            "length", [](const PyNeighborhood& self) { return self.found.length; }, "How many bits they share.")
        .def_prop_ro(
            "count", [](const PyNeighborhood& self) { return self.found.count; }, "How many they are.")
        .def_prop_ro(
            "ids", [](const PyNeighborhood& self) { return self.forest.attr("_ids_of")(nb::find(self)); },
            "Their ids, ascending.")
        .def("__repr__", [](const PyNeighborhood& self) {
            return "Neighborhood(length=" + std::to_string(self.found.length) +
                   ", count=" + std::to_string(self.found.count) + ")";
        });
    m.def("insert_rows", insert_rows, "packed"_a.noconvert(), "first"_a, "heads"_a.noconvert(), "order"_a.noconvert(),
          "new_heads"_a.noconvert(), "new_order"_a.noconvert(),
          "Write the sorted order of the rows, given that of the rows before `first`.");
    m.def("find_ids", find_ids, "ids"_a.noconvert(), "places"_a.noconvert(), "wanted"_a.noconvert(),
          "found"_a.noconvert(), "ids_guard"_a.none() = nb::none(), "places_guard"_a.none() = nb::none(),
          "Write the place of each wanted id, or -1.");
    m.def("load_heads", load_heads, "packed"_a.noconvert(), "heads"_a.noconvert(),
          "Write the first 64 bits of each row as a number.");
    m.def("build_tables", build_tables, "heads"_a.noconvert(), "width"_a, "The tables of sorted heads.");
    m.def("block_sums", block_sums, "data"_a.noconvert(), "The checksum of each block of 65,536 bytes.");
}
