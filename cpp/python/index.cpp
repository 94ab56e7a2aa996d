// Prefix trees over sorted codes: nestcode/index.
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>
#define NPY_NO_DEPRECATED_API NPY_2_0_API_VERSION
#include <numpy/arrayobject.h>

#include "nestcode/forest.hpp"
#include "nestcode/merge.hpp"
#include "storage.hpp"

namespace {

using StoredIds = nb::ndarray<nb::ro, nb::ndim<1>, nb::c_contig, nb::device::cpu>;  // of 32 bits without sign, or 64

nestcode::IdColumn ids_of(const StoredIds& ids, PyChecksumGuard* guard) {
    nestcode::ChecksumGuard* const watch = guard_of(guard, ids.data(), ids.nbytes());
    if (ids.dtype() == nb::dtype<std::uint32_t>())
        return {{static_cast<const std::uint32_t*>(ids.data()), ids.size(), watch}, {}};
    if (ids.dtype() == nb::dtype<std::int64_t>())
        return {{}, {static_cast<const std::int64_t*>(ids.data()), ids.size(), watch}};
    throw nb::value_error("ids must be uint32 or int64");
}

// A prefix tree and the owner of its arrays.
struct PyPrefixTree {
    nb::object owner;
    std::unique_ptr<nestcode::Tombstones> tombstones;
    nestcode::PrefixTree tree;

    PyPrefixTree(nb::object owner, const Packed& rows, const Vec<std::uint64_t>& heads, const Vec<std::uint32_t>& order,
                 const Vec<std::uint32_t>& tables, const Vec<std::uint32_t>& deleted, const StoredIds& ids,
                 std::int32_t width, PyChecksumGuard* rows_guard, PyChecksumGuard* heads_guard,
                 PyChecksumGuard* tables_guard, PyChecksumGuard* ids_guard)
        : owner(std::move(owner)) {
        tree.rows = rows_of(rows);
        tree.rows_guard = guard_of(rows_guard, rows.data(), rows.shape(0) * rows.shape(1));
        tree.heads = column_of(heads, heads_guard);
        tree.order = column_of(order);
        tree.tables = column_of(tables, tables_guard);
        tree.ids = ids_of(ids, ids_guard);
        tree.width = width;
        if (heads.size() >= UINT32_MAX) throw nb::value_error("a tree must have less than 2^32 items");
        if (order.size() != 0 ? order.size() != heads.size() : rows.shape(0) != heads.size())
            throw nb::value_error("there must be a head for each row, or for each position of the order");
        if (ids.size() < rows.shape(0)) throw nb::value_error("there must be an id for each row");
        if (tables.size() < nestcode::table_size(0)) throw nb::value_error("there must be a table for the root");
        for (std::size_t i = 0; i < deleted.size(); ++i)
            if (deleted(i) >= heads.size() || (i > 0 && deleted(i) <= deleted(i - 1)))
                throw nb::value_error("tombstones must be ascending positions within the tree");
        for (std::size_t i = 0; i < order.size(); ++i)
            if (order(i) >= rows.shape(0)) throw nb::value_error("an order must consist of rows");
        if (deleted.size() != 0) {
            tombstones =
                std::make_unique<nestcode::Tombstones>(std::span(deleted.data(), deleted.size()), heads.size());
            tree.tombstones = tombstones.get();
        }
    }
};

void find_starts(const PyPrefixTree& self, std::int32_t length, const Array<std::uint32_t, 1>& out) {
    if (length < 0 || length > std::min(self.tree.width, 31) || out.size() != (std::size_t{1} << length) + 1)
        throw nb::value_error("there must be room for the start of each prefix of this length, and the end");
    nb::gil_scoped_release released;
    self.tree.find_starts(length, out.data());
}

struct PyForest {
    std::vector<nestcode::PrefixTree> trees;
    std::vector<nb::object> owners;  // of the trees' arrays
    bool guarded = false;
    std::size_t bytes;
    long width;

    PyForest(const std::vector<nb::object>& given, std::int32_t width)
        : owners(given), bytes((static_cast<std::size_t>(width) + 7) / 8), width(width) {
        for (const nb::object& object : given) {
            trees.push_back(nb::cast<PyPrefixTree&>(object).tree);
            const nestcode::PrefixTree& tree = trees.back();
            if (tree.width != width || tree.rows.bytes != bytes)
                throw nb::value_error("trees must have the width of the forest");
            guarded |= tree.rows_guard != nullptr;
        }
    }

    // Whether a search read from a damaged block: its results must be discarded.
    bool damaged() const {
        if (!guarded) return false;
        return std::any_of(trees.begin(), trees.end(), [](const nestcode::PrefixTree& tree) {
            for (const nestcode::ChecksumGuard* guard :
                 {tree.rows_guard, tree.heads.guard, tree.tables.guard, tree.ids.guard()})
                if (guard != nullptr && guard->first_damaged() >= 0) return true;
            return false;
        });
    }
};

struct PyNeighborhood {
    nb::object forest;
    nestcode::Neighborhood found;
    nestcode::Range single;  // its range if there is one tree: an allocation would take longer than the search
    std::vector<nestcode::Range> ranges;  // if there are several trees

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
            data()[t] = {rows(t, 0), rows(t, 1)};
        }
    }

    nestcode::Range* data() { return ranges.empty() ? &single : ranges.data(); }
};

// The code of a nestcode.codes.Code. It is read from NumPy's array itself: a view by the buffer protocol or by
// DLPack takes longer than the search.
class OneCode {
  public:
    OneCode(nb::handle codes, const PyForest& forest) {
        static PyObject* const packed_name = PyUnicode_InternFromString("_packed");
        static PyObject* const width_name = PyUnicode_InternFromString("_width");
        static PyObject* const code_type =
            nb::object(nb::module_::import_("nestcode.codes").attr("Code")).release().ptr();
        static PyObject* const array_type = nb::object(nb::module_::import_("numpy").attr("ndarray")).release().ptr();
        if (reinterpret_cast<PyObject*>(Py_TYPE(codes.ptr())) != code_type) return;
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

// The fast path for one code and a size. Everything else, including errors, is left to the Python subclass.
nb::object neighborhood(nb::handle_t<PyForest> self, nb::handle query, nb::handle size, nb::handle fraction,
                        nb::handle threads) {
    if (!nb::inst_ready(self)) throw nb::value_error("the forest must be initialized: call Forest.__init__");
    const PyForest& forest = *nb::inst_ptr<PyForest>(self);
    if (fraction.is_none() && PyLong_CheckExact(size.ptr())) {
        const Py_ssize_t least = PyLong_AsSsize_t(size.ptr());
        if (least < 0) PyErr_Clear();
        const OneCode code(query, forest);
        if (least > 0 && code.fits()) {
            PyNeighborhood hood(nb::borrow(self), forest.trees.size());
            const nestcode::Query one = code.query(forest.bytes);
            nestcode::find_neighborhoods(forest.trees, {&one, 1}, static_cast<std::uint64_t>(least), &hood.found,
                                         hood.data());
            if (!forest.damaged()) return nb::cast(std::move(hood));
        }
    }
    return self.attr("_neighborhood")(query, size, fraction, threads);
}

void find_neighborhoods(const PyForest& forest, const Packed& queries, std::uint64_t size,
                        const Array<std::int32_t, 1>& lengths, const Ids& counts, const Array<std::uint32_t, 3>& ranges,
                        std::size_t threads) {
    const std::size_t count = queries.shape(0);
    if (queries.shape(1) != forest.bytes) throw nb::value_error("queries must have the width of the trees");
    if (size == 0) throw nb::value_error("size must be at least 1");
    if (lengths.shape(0) != count || counts.shape(0) != count || ranges.shape(0) != count ||
        ranges.shape(1) != forest.trees.size() || ranges.shape(2) != 2)
        throw nb::value_error("there must be a length, a count and ranges for each query");
    const nestcode::Rows rows = rows_of(queries);
    nb::gil_scoped_release released;
    nestcode::find_neighborhoods(forest.trees, rows, size, lengths.data(), counts.data(),
                                 reinterpret_cast<nestcode::Range*>(ranges.data()), threads);
}

void find_prefixes(const PyForest& forest, const Packed& query, const Ids& counts,
                   const Array<std::uint32_t, 3>& ranges) {
    if (query.shape(0) != 1 || query.shape(1) != forest.bytes)
        throw nb::value_error("there must be one query, of the width of the trees");
    if (ranges.shape(0) != counts.shape(0) || ranges.shape(1) != forest.trees.size() || ranges.shape(2) != 2 ||
        counts.shape(0) > static_cast<std::size_t>(forest.width) + 1)
        throw nb::value_error("there must be ranges for each length");
    const nestcode::Query one(query.data(), forest.bytes);
    auto* found = reinterpret_cast<nestcode::Range*>(ranges.data());
    for (std::size_t length = 0; length < counts.shape(0); ++length) {
        counts(length) = 0;
        for (const nestcode::PrefixTree& tree : forest.trees) {
            *found = tree.find(one, static_cast<std::int32_t>(length));
            counts(length) += tree.live(*found++);
        }
    }
}

// The number of live items in one range per tree; throws unless the ranges lie within the trees.
std::int64_t count_live(const PyForest& forest, const nestcode::Range* ranges) {
    std::int64_t live = 0;
    for (const nestcode::PrefixTree& tree : forest.trees) {
        const nestcode::Range range = *ranges++;
        if (range.begin > range.end || range.end > tree.count())
            throw nb::value_error("a range must lie within its tree");
        live += tree.live(range);
    }
    return live;
}

void gather_ids(const PyForest& forest, const Array<const std::uint32_t, 3>& ranges, const Vec<std::int64_t>& offsets,
                const Ids& ids, std::size_t threads) {
    const std::size_t count = ranges.shape(0), trees = forest.trees.size();
    if (ranges.shape(1) != trees || ranges.shape(2) != 2 || offsets.size() != count + 1 || offsets(0) != 0 ||
        static_cast<std::size_t>(offsets(count)) != ids.size())
        throw nb::value_error("there must be ranges and an offset for each query, and room for each id");
    const auto* const found = reinterpret_cast<const nestcode::Range*>(ranges.data());
    nb::gil_scoped_release released;
    for (std::size_t i = 0; i < count; ++i)
        if (offsets(i + 1) - offsets(i) != count_live(forest, found + i * trees))
            throw nb::value_error("offsets must be the sums of the numbers of items");
    nestcode::gather_ids(forest.trees, found, offsets.data(), count, ids.data(), threads);
}

// The ids of a neighborhood. NumPy's C API makes the array: by nanobind it would take longer than the search.
nb::object neighborhood_ids(PyNeighborhood& self) {
    if (PyArray_ImportNumPyAPI() < 0) throw nb::python_error();  // the first time
    const PyForest& forest = *nb::inst_ptr<PyForest>(self.forest);
    npy_intp count = count_live(forest, self.data());
    nb::object ids = nb::steal(PyArray_SimpleNew(1, &count, NPY_INT64));
    if (!ids.is_valid()) throw nb::python_error();
    auto* const data = PyArray_DATA(reinterpret_cast<PyArrayObject*>(ids.ptr()));
    nestcode::gather_ids(forest.trees, self.data(), static_cast<std::int64_t*>(data));
    if (forest.damaged()) self.forest.attr("check")();
    return ids;
}

void merge_trees(const std::vector<nb::object>& given, const Array<std::uint8_t, 2>& rows,
                 const Array<std::uint64_t, 1>& heads, const Ids& ids, const Ids& sources) {
    std::vector<nestcode::PrefixTree> trees;
    std::uint64_t live = 0;
    for (const nb::object& object : given) {
        trees.push_back(nb::cast<PyPrefixTree&>(object).tree);
        live += trees.back().live();
        if (trees.back().rows.bytes != rows.shape(1)) throw nb::value_error("trees must have the width of the rows");
    }
    if (rows.shape(0) != live || heads.shape(0) != live || ids.shape(0) != live || sources.shape(0) != live)
        throw nb::value_error("there must be room for each live item");
    nb::gil_scoped_release released;
    nestcode::merge_live(trees, rows.data(), heads.data(), ids.data(), sources.data());
}

void insert_rows(const Packed& packed, std::size_t first, const Vec<std::uint64_t>& heads,
                 const Vec<std::uint32_t>& order, const Array<std::uint64_t, 1>& new_heads,
                 const Array<std::uint32_t, 1>& new_order) {
    const nestcode::Rows rows = rows_of(packed);
    if (first > rows.count || heads.size() != order.size() || new_heads.size() != heads.size() + rows.count - first ||
        new_order.size() != new_heads.size())
        throw nb::value_error("there must be room for each row");
    for (std::size_t i = 0; i < order.size(); ++i)
        if (order(i) >= first) throw nb::value_error("an order must consist of earlier rows");
    nestcode::insert_rows(rows, first, heads.data(), order.data(), heads.size(), new_heads.data(), new_order.data());
}

void find_ids(const StoredIds& ids, const Vec<std::uint32_t>& by_id, const Vec<std::int64_t>& wanted, const Ids& found,
              PyChecksumGuard* ids_guard, PyChecksumGuard* by_id_guard) {
    if (ids.size() != by_id.size() || wanted.size() != found.size())
        throw nb::value_error("there must be a position for each id, and room for each wanted one");
    const nestcode::IdColumn all_ids = ids_of(ids, ids_guard);
    const auto positions = column_of(by_id, by_id_guard);
    nb::gil_scoped_release released;
    nestcode::find_ids(all_ids, positions, wanted.data(), wanted.size(), found.data());
}

void load_heads(const Packed& packed, const Array<std::uint64_t, 1>& heads) {
    if (heads.size() != packed.shape(0)) throw nb::value_error("there must be a head for each row");
    const nestcode::Rows rows = rows_of(packed);
    for (std::size_t i = 0; i < rows.count; ++i) heads(i) = nestcode::load_big_endian(rows[i], rows.bytes);
}

auto build_prefix_tables(const Vec<std::uint64_t>& heads, std::int32_t width) {
    std::vector<std::uint32_t> tables;
    {
        nb::gil_scoped_release released;
        tables = nestcode::build_prefix_tables(heads.data(), static_cast<std::uint32_t>(heads.size()), width);
    }
    return array_of(std::move(tables));
}

}  // namespace

void add_index(nb::module_& m) {
    nb::class_<PyPrefixTree>(m, "PrefixTree", "Sorted codes with lookup tables and tombstones.")
        .def(nb::init<nb::object, const Packed&, const Vec<std::uint64_t>&, const Vec<std::uint32_t>&,
                      const Vec<std::uint32_t>&, const Vec<std::uint32_t>&, const StoredIds&, std::int32_t,
                      PyChecksumGuard*, PyChecksumGuard*, PyChecksumGuard*, PyChecksumGuard*>(),
             "owner"_a, "rows"_a.noconvert(), "heads"_a.noconvert(), "order"_a.noconvert(), "tables"_a.noconvert(),
             "tombstones"_a.noconvert(), "ids"_a.noconvert(), "width"_a, "rows_guard"_a.none() = nb::none(),
             "heads_guard"_a.none() = nb::none(), "tables_guard"_a.none() = nb::none(),
             "ids_guard"_a.none() = nb::none())
        .def("find_starts", find_starts, "length"_a, "out"_a.noconvert(),
             "Write where the items of each prefix of this length begin, and where the last ones end.");
    nb::class_<PyForest>(m, "Forest", "Prefix trees that are queried as one.")
        .def(nb::init<const std::vector<nb::object>&, std::int32_t>(), "trees"_a, "width"_a)
        .def("neighborhood", neighborhood, "query"_a, nb::kw_only(), "size"_a = nb::none(), "fraction"_a = nb::none(),
             "threads"_a.none() = 1, "Return the deepest neighborhood of a query that is large enough.")
        .def("_find_neighborhoods", find_neighborhoods, "queries"_a.noconvert(), "size"_a, "lengths"_a.noconvert(),
             "counts"_a.noconvert(), "ranges"_a.noconvert(), "threads"_a = 1,
             "Write the length, the number of items and the ranges of each query's neighborhood.")
        .def("_find_prefixes", find_prefixes, "query"_a.noconvert(), "counts"_a.noconvert(), "ranges"_a.noconvert(),
             "Write the number of items and the ranges of each prefix of a query, shortest first.")
        .def("gather_ids", gather_ids, "ranges"_a.noconvert(), "offsets"_a.noconvert(), "ids"_a.noconvert(),
             "threads"_a = 1, "Write the ids of each query's neighborhood, one after the other.")
        .def_prop_ro("_damaged", &PyForest::damaged, "Whether a damaged block was read.");
    nb::class_<PyNeighborhood>(m, "Neighborhood", "All items that share a prefix with a query.")
        .def(nb::init<nb::object, std::int32_t, std::int64_t, const Array<const std::uint32_t, 2>&>(), "forest"_a,
             "length"_a, "count"_a, "ranges"_a.noconvert())
        .def_prop_ro(
            "length", [](const PyNeighborhood& self) { return self.found.length; },
            "The length of the prefix, in bits.")
        .def_prop_ro(
            "count", [](const PyNeighborhood& self) { return self.found.count; }, "The number of items.")
        .def_prop_ro("ids", neighborhood_ids, "The ids of the items, in the order of the tree.")
        .def("__repr__", [](const PyNeighborhood& self) {
            return "Neighborhood(length=" + std::to_string(self.found.length) +
                   ", count=" + std::to_string(self.found.count) + ")";
        });
    m.def("merge_trees", merge_trees, "trees"_a, "rows"_a.noconvert(), "heads"_a.noconvert(), "ids"_a.noconvert(),
          "sources"_a.noconvert(), "Write the rows, heads, ids and sources of all live items in sorted order.");
    m.def("insert_rows", insert_rows, "packed"_a.noconvert(), "first"_a, "heads"_a.noconvert(), "order"_a.noconvert(),
          "new_heads"_a.noconvert(), "new_order"_a.noconvert(),
          "Write the sorted order of all rows, given that of the rows before `first`.");
    m.def("find_ids", find_ids, "ids"_a.noconvert(), "by_id"_a.noconvert(), "wanted"_a.noconvert(),
          "found"_a.noconvert(), "ids_guard"_a.none() = nb::none(), "by_id_guard"_a.none() = nb::none(),
          "Write the position of each wanted id, or -1.");
    m.def("load_heads", load_heads, "packed"_a.noconvert(), "heads"_a.noconvert(),
          "Write the first 64 bits of each row as an integer.");
    m.def("build_prefix_tables", build_prefix_tables, "heads"_a.noconvert(), "width"_a,
          "Return the lookup tables of sorted heads.");
}
