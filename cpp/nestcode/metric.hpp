// The metrics of a search.
#pragma once

#include <stdexcept>
#include <string>
#include <string_view>

namespace nestcode {

enum class Metric { l2, cosine, inner };

// The metric with this name; other names are refused.
inline Metric metric_named(std::string_view name) {
    if (name == "l2") return Metric::l2;
    if (name == "cosine") return Metric::cosine;
    if (name == "inner") return Metric::inner;
    throw std::invalid_argument("metric must be one of l2, cosine and inner, got '" + std::string(name) + "'");
}

}  // namespace nestcode
