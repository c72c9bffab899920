//! Pages: a head, a list of links, sections of text or of items that the page repeats, a foot, and a script with data.

use super::Text;
use super::words::{capital, rare};

impl Text {
    pub(super) fn page(&mut self) {
        // Plain classes, those of blocks and elements (BEM), and those that a bundler has made unique.
        let style = self.chance.below(3);
        let prefix = rare(self.chance.below(4096));
        for _ in 0..63 {
            let (first, second, hash) = (self.term(), self.term(), self.chance.below(1 << 20));
            self.labels.push(match style {
                0 => format!("{first}-{second}"),
                1 => format!("{prefix}-{first}__{second}"),
                _ => format!("{first}{}_{hash:05x}", capital(second)),
            });
        }
        // What grows with a page: a large one has more of everything.
        let scale = self.size / 2048;
        self.fill("<!DOCTYPE html>%/<html lang=\"en\">%/<head>%/<meta charset=\"utf-8\">%/<title>%t | %N</title>");
        let count = 6 + self.chance.below(4 + scale.min(10));
        for part in self.chance.some(HEAD, count) {
            self.fill(&format!("%/{part}"));
        }
        self.fill("%/<style>");
        for _ in 0..self.chance.below(2 + scale.min(40)) {
            self.fill(".%l{");
            let count = 1 + self.chance.below(4);
            self.chance.some(RULES, count).into_iter().for_each(|rule| self.fill(rule));
            self.fill("}%/");
        }
        let header = self.classed(
            "</style>%/</head>%/<body class=\"%c\">%/<header class=\"%c\"><a href=\"/\">%N</a>%/<ul class=\"%c\">",
        );
        self.fill(&header);
        let link = self.classed("%/<li class=\"%c\"><a class=\"%c\" href=\"/%w/%w\">%N</a></li>");
        (0..2 + self.chance.below(3 + scale.min(12))).for_each(|_| self.fill(&link));
        self.fill("%/</ul></header>%/<main>");

        let cards: Vec<_> = (0..3).map(|_| self.card()).collect();
        let heading = self.classed("%/<section class=\"%c\" id=\"%w-%w\">%/<h2 class=\"%c\">%t</h2>");
        // Of eight sections so many are text.
        let texts = 1 + self.chance.below(5);
        // The rest is for the foot and the data behind it.
        let end = self.size.saturating_sub(2_000);
        while self.out.len() < end {
            self.fill(&heading);
            if self.chance.below(8) < texts {
                let count = 1 + self.chance.below(4);
                self.chance.some(PROSE, count).into_iter().for_each(|part| self.fill(part));
            } else {
                let (open, parts, close) = self.chance.favourite(&cards);
                for _ in 0..3 + self.chance.zipf(5) {
                    self.fill(open);
                    for part in parts {
                        if self.chance.below(10) > 0 {
                            self.fill(part);
                        }
                    }
                    self.fill(close);
                    if self.out.len() >= end {
                        break;
                    }
                }
            }
            self.fill("%/</section>");
        }
        self.fill("%/</main>%/<footer>%/<ul>");
        (0..2 + self.chance.below(3 + scale.min(9))).for_each(|_| self.fill(&link));
        self.fill(
            "%/</ul>%/<p>&copy; 2024 %N. %s</p>%/</footer>%/<script>window.__STATE__={\"build\":\"%H\",\"items\":[",
        );
        while self.out.len() < self.size {
            self.fill("{\"id\":%i,\"title\":\"%t\",\"key\":\"%h\",\"n\":%n},");
        }
    }

    /// An item that a page repeats: what is around it, and its parts.
    fn card(&mut self) -> (String, Vec<String>, String) {
        let [open, close] = *self.chance.any(&CARDS);
        let count = 2 + self.chance.below(6);
        let parts = self.chance.some(PARTS, count).into_iter().map(|part| self.classed(&format!("%/{part}"))).collect();
        (self.classed(&format!("%/{open}")), parts, format!("%/{close}"))
    }

    /// `template` with classes of the page in the places of `%c`: what is the same wherever the page uses it.
    fn classed(&mut self, template: &str) -> String {
        let mut parts = template.split("%c");
        let mut classed = parts.next().unwrap_or_default().to_owned();
        for part in parts {
            let classes: Vec<_> =
                (0..1 + self.chance.zipf(2)).map(|_| self.chance.favourite(&self.labels).as_str()).collect();
            classed += &classes.join(" ");
            classed += part;
        }
        classed
    }
}

/// Templates of a page's head.
const HEAD: &str = r##"<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="description" content="%s">
<meta property="og:title" content="%t">
<meta property="og:image" content="https://cdn.example.com/%q/%h.jpg">
<meta property="og:url" content="https://www.example.com/%q/%u">
<meta name="twitter:card" content="summary_large_image">
<meta name="theme-color" content="#%h">
<meta name="csrf-token" content="%H">
<link rel="canonical" href="https://www.example.com/%q/%u">
<link rel="stylesheet" href="/assets/%q-%h.css" media="all">
<link rel="preload" href="/assets/fonts/%q.%h.woff2" as="font" type="font/woff2" crossorigin>
<link rel="preconnect" href="https://fonts.example.com">
<link rel="icon" type="image/png" sizes="32x32" href="/favicon-32x32.png?v=%h">
<link rel="alternate" type="application/rss+xml" title="%N" href="/feed.xml">
<script src="/assets/%q.%h.js" defer></script>
<script async src="https://static.example.com/%q/%h.js" integrity="sha384-%H%H"></script>
<script>window.dataLayer=window.dataLayer||[];function gtag(){dataLayer.push(arguments)}gtag("js",new Date);gtag("config","G-%h");</script>
<script type="application/ld+json">{"@context":"https://schema.org","@type":"WebPage","name":"%t","datePublished":"%d+00:00"}</script>"##;

/// Rules of a page's style.
const RULES: &str = r##"margin:0 auto;
padding:%npx %npx;
display:flex;
color:#%h;
background:#%h;
font-size:%fem;
width:100vw;
max-width:%3px;
line-height:1.%n;
border-radius:%npx;
position:relative;
text-decoration:none;
font-weight:700;"##;

/// What is around an item.
const CARDS: [[&str; 2]; 4] = [
    [r#"<article class="%c" data-id="%i">"#, "</article>"],
    [r#"<li class="%c" id="post-%i">"#, "</li>"],
    [r#"<div class="%c" data-key="%i"><div class="%c">"#, "</div></div>"],
    [r#"<div class="%c" role="listitem" id="item-%i">"#, "</div>"],
];

/// What an item may have.
const PARTS: &str = r##"<h3 class="%c"><a href="/%q/%u" class="%c">%r</a></h3>
<a class="%c" href="/%q/%u" title="%r">%r</a>
<img class="%c" src="/media/%h_%3x%3.jpg" alt="%r" width="%3" height="%3" loading="lazy">
<p class="%c">%s</p>
<p class="%c">%p</p>
<time class="%c" datetime="%dZ">%d</time>
<span class="%c">%N</span>
<span class="%c" data-count="%n">%n</span>
<a class="%c" href="/%q/%w" rel="tag">%w</a>
<div class="%c"><span class="%c">$%n.99</span><del class="%c">$%n.99</del></div>
<button type="button" class="%c" data-target="#%q-%I" aria-label="%w %w"><svg class="%c" viewBox="0 0 24 24" aria-hidden="true"><use href="#icon-%q"/></svg></button>
<dl class="%c"><dt class="%c">%w</dt><dd class="%c">%n</dd><dd class="%c">%f</dd></dl>
<input type="checkbox" name="%q" value="%I" id="%q-%I"><label for="%q-%I">%w</label>
<ul class="%c"><li class="%c">%w</li><li class="%c">%w %w</li></ul>"##;

/// What text is made of.
const PROSE: &str = r##"%/<p>%p</p>
%/<p>%p</p>%/<p>%p</p>
%/<p>%s <a href="/%q/%w-%w">%w %w</a> %p</p>
%/<blockquote><p>%s</p></blockquote>%/<p>%p</p>
%/<ul>%/<li>%s</li>%/<li>%s</li>%/<li>%t</li>%/</ul>
%/<p><strong>%t.</strong> %p</p>
%/<p>%p<em>%w</em> %s</p>"##;
