/* ddrun-toml: reads a TOML file on standard input, and writes its values with their lines as JSON:
 *
 *   {"values": [[LINE, ["partition", "gpu", "log-dir"], VALUE], ...]}
 *   {"line": LINE, "error": "..."}     LINE is 0 if it is not known
 *
 * VALUE is the text of a string or number, true, false, a list of these, or null for any other
 * type. The only program with toml++: a process of its own, since the library is C++. */
#include <cstdio>
#include <cstdlib>

/* toml++ 3.3.0 checks some input by assertions. Src: "[[[" violates one of parse_key() */
[[noreturn]] static void refuse()
{
    (void)std::printf("{\"line\": 0, \"error\": \"the TOML parser failed on this file\"}\n");
    (void)std::fflush(stdout);
    std::_Exit(0);
}

#define TOML_ASSERT(condition) ((condition) ? static_cast<void>(0) : refuse())
#define TOML_EXCEPTIONS 0
#define TOML_ENABLE_FORMATTERS 0
#include <toml++/toml.h>

#include <cmath>
#include <new>
#include <string>
#include <string_view>
#include <vector>

#include <sys/resource.h>
#include <unistd.h>

namespace
{

constexpr std::size_t kFileMax = 64 << 10;
constexpr std::size_t kDotsMax = 16; /* in a key; toml++ limits the nesting of values only */
constexpr std::size_t kDepthMax = 4; /* ["partition", "gpu", "environment", "NCCL_DEBUG"] */

std::string quote(std::string_view text)
{
    std::string out = "\"";
    char escape[8];
    for (const char c : text) {
        const auto byte = static_cast<unsigned char>(c);
        (void)std::snprintf(escape, sizeof(escape), "\\u%04x", byte);
        if (byte < 0x20 || c == '"' || c == '\\')
            out += escape;
        else
            out += c;
    }
    return out + '"';
}

/* Return the shortest text with this value. */
std::string number(double value)
{
    char text[40] = "";
    for (int digits = 1; digits <= 17; digits++) {
        (void)std::snprintf(text, sizeof(text), "%.*g", digits, value);
        if (!(std::strtod(text, nullptr) != value))
            break;
    }
    return std::isfinite(value) ? quote(text) : "null";
}

std::string scalar(const toml::node &node)
{
    if (const auto *s = node.as_string())
        return s->get().find('\0') == std::string::npos ? quote(s->get()) : "null";
    if (const auto *i = node.as_integer())
        return quote(std::to_string(i->get()));
    if (const auto *f = node.as_floating_point())
        return number(f->get());
    if (const auto *b = node.as_boolean())
        return b->get() ? "true" : "false";
    return "null";
}

std::string value(const toml::node &node)
{
    const toml::array *list = node.as_array();
    if (list == nullptr)
        return scalar(node);
    std::string out;
    for (const toml::node &element : *list)
        out += (out.empty() ? "[" : ", ") + scalar(element);
    return out.empty() ? "[]" : out + "]";
}

/* Append the values of a table and of the tables in it. Paths longer than any that ddrun knows end
 * in null: ddrun refuses their line. */
void walk(const toml::table &table, const std::string &path, std::size_t depth, std::string &out)
{
    for (const auto &[key, node] : table) {
        const std::string here = (path.empty() ? "" : path + ", ") + quote(key.str());
        const toml::table *inner = depth <= kDepthMax ? node.as_table() : nullptr;
        if (inner != nullptr)
            walk(*inner, here, depth + 1, out);
        else
            out += (out.empty() ? "" : ",\n ") + ("[" + std::to_string(key.source().begin.line)) +
                   ", [" + here + "], " + value(node) + "]";
    }
}

/* Return the position behind the string that begins at i, at most the end of the line. */
std::size_t skip_string(std::string_view line, std::size_t i)
{
    const char end = line[i++];
    while (i < line.size() && line[i] != end)
        i += line[i] == '\\' && end == '"' ? 2 : 1;
    return i + 1;
}

bool has_long_key(std::string_view line)
{
    std::size_t dots = 0;
    for (std::size_t i = 0; i < line.size() && line[i] != '#';) {
        if (line[i] == '"' || line[i] == '\'') {
            i = skip_string(line, i);
            continue;
        }
        if (line[i] == '=' || line[i] == ',' || line[i] == '{')
            dots = 0;
        dots += line[i++] == '.' ? 1 : 0;
        if (dots > kDotsMax)
            return true;
    }
    return false;
}

/* Return the number of the first line with a key of too many parts, 0: none. Lines of a string that
 * spans several may hide one; the limits of the process remain. */
unsigned find_long_key(std::string_view text)
{
    for (unsigned line = 1; !text.empty(); line++) {
        const std::size_t end = text.find('\n');
        if (has_long_key(text.substr(0, end)))
            return line;
        text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
    }
    return 0;
}

void set_limit(decltype(RLIMIT_CPU) resource, rlim_t value)
{
    const struct rlimit limit = {value, value};
    (void)setrlimit(resource, &limit);
}

/* toml++ may crash or take seconds for input of an attacker. */
void limit_process()
{
    set_limit(RLIMIT_CORE, 0);
    set_limit(RLIMIT_CPU, 2);
#ifndef __SANITIZE_ADDRESS__ /* its shadow takes terabytes of addresses */
    set_limit(RLIMIT_AS, 256 << 20);
#endif
    std::set_new_handler(refuse);
}

std::string read_all()
{
    std::string text(kFileMax + 1, '\0');
    std::size_t n = 0;
    for (ssize_t k; n < text.size() && (k = read(STDIN_FILENO, &text[n], text.size() - n)) > 0;)
        n += static_cast<std::size_t>(k);
    text.resize(n);
    return text;
}

} // namespace

int main()
{
    limit_process();
    const std::string text = read_all();
    const unsigned line = find_long_key(text);
    std::string out;
    if (text.size() > kFileMax) {
        (void)std::printf("{\"line\": 1, \"error\": \"the file is larger than 64 KiB\"}\n");
        return 0;
    }
    if (line > 0) {
        (void)std::printf("{\"line\": %u, \"error\": \"the key has more than %zu parts\"}\n", line,
                          kDotsMax + 1);
        return 0;
    }
    const toml::parse_result result = toml::parse(text);
    if (!result) {
        const auto &error = result.error();
        (void)std::printf("{\"line\": %u, \"error\": %s}\n",
                          static_cast<unsigned>(error.source().begin.line),
                          quote(error.description()).c_str());
        return 0;
    }
    walk(result.table(), "", 1, out);
    (void)std::printf("{\"values\": [%s]}\n", out.c_str());
    return std::fflush(stdout) == 0 ? 0 : 1;
}
