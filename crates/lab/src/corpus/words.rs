//! Words: the frequent ones are listed, the others are made of syllables.

/// A word of a rank that is not listed, made of syllables.
pub(super) fn rare(rank: usize) -> String {
    let bits = spread(rank);
    (0..2 + bits % 2).map(|i| SYLLABLES[(bits >> (6 * i + 1)) % SYLLABLES.len()]).collect()
}

/// 32 bits that differ much between ranks that differ little: multiplied by 2^64 over the golden ratio (Knuth, vol. 3, 6.4).
pub(super) fn spread(rank: usize) -> usize {
    ((rank as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) as usize
}

pub(super) fn capital(word: &str) -> String {
    let mut rest = word.chars();
    rest.next().into_iter().flat_map(char::to_uppercase).chain(rest).collect()
}

/// The most frequent words, in that order.
pub(super) const COMMON: [&str; 96] = [
    "the", "of", "and", "to", "in", "a", "is", "for", "that", "on", "with", "as", "it", "by", "are", "be", "this",
    "was", "at", "from", "or", "an", "have", "you", "not", "we", "your", "can", "more", "has", "all", "will", "new",
    "which", "their", "but", "one", "our", "they", "about", "when", "up", "time", "also", "there", "if", "out", "who",
    "what", "so", "use", "first", "may", "other", "had", "its", "been", "people", "year", "into", "only", "no", "some",
    "over", "how", "than", "most", "after", "work", "any", "two", "such", "get", "read", "where", "help", "were",
    "like", "between", "make", "these", "many", "would", "well", "data", "made", "find", "service", "through", "world",
    "home", "page", "learn", "free", "best", "story",
];

/// What other words are made of.
pub(super) const SYLLABLES: [&str; 64] = [
    "con", "ver", "ter", "men", "pro", "ing", "re", "com", "per", "ex", "de", "in", "al", "er", "es", "ar", "di", "ou",
    "ive", "age", "ten", "car", "mo", "sta", "lan", "fo", "ma", "son", "be", "to", "din", "ple", "ure", "ly", "ne",
    "cal", "gra", "der", "st", "o", "ight", "el", "ock", "an", "und", "po", "li", "sa", "me", "ca", "ti", "no", "ra",
    "us", "ful", "wa", "bri", "che", "le", "pre", "ed", "se", "tion", "a",
];

/// What identifiers and classes are made of, the most frequent first.
pub(super) const TERMS: [&str; 100] = [
    "item", "value", "data", "list", "node", "index", "event", "name", "key", "options", "type", "id", "result",
    "element", "state", "text", "content", "title", "header", "link", "button", "card", "nav", "icon", "image", "box",
    "wrapper", "main", "row", "col", "active", "get", "set", "update", "handle", "render", "create", "remove", "parse",
    "init", "config", "callback", "error", "response", "request", "user", "path", "url", "query", "key", "offset",
    "length", "count", "start", "end", "size", "width", "height", "target", "source", "parent", "child", "model",
    "view", "store", "cache", "buffer", "stream", "token", "scope", "context", "module", "plugin", "filter", "map",
    "group", "section", "footer", "menu", "modal", "form", "input", "label", "field", "badge", "price", "product",
    "author", "date", "comment", "tag", "post", "media", "video", "search", "page", "panel", "grid", "sidebar",
    "banner",
];
