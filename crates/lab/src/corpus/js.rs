//! Scripts: functions of statements that the script is fond of, readable or minified.

use super::Text;

impl Text {
    pub(super) fn script(&mut self) {
        self.labels = (0..63).map(|_| self.identifier()).collect();
        let variables: Vec<_> = match self.indent {
            Some(_) => (0..127).map(|_| self.identifier()).collect(),
            None => ('a'..='z').map(String::from).collect(),
        };
        let [functions, statements, expressions] = [FUNCTIONS, STATEMENTS, EXPRESSIONS].map(|templates| {
            let shape = |template: &str| if self.indent.is_some() { template.to_owned() } else { minified(template) };
            templates.lines().map(shape).collect::<Vec<_>>()
        });
        self.expressions = (0..15).map(|_| self.chance.any(&expressions).clone()).collect();
        self.statements = (0..31)
            .map(|_| {
                let statement = self.chance.any(&statements);
                self.idiom(statement)
            })
            .collect();
        while self.out.len() < self.size {
            // What a function is about and how it is written, those around it are as well.
            for _ in 0..3 {
                let (front, other) = (self.chance.zipf(3), self.chance.below(self.labels.len()));
                self.labels.swap(front, other);
            }
            let (at, statement) = (self.chance.zipf(5), self.chance.any(&statements));
            self.statements[at] = self.idiom(statement);
            self.variables = (0..7).map(|_| self.chance.any(&variables).clone()).collect();
            if self.indent.is_some() && self.chance.below(2) == 0 {
                self.fill("/**\n * %s\n * @param {%q} %v\n */\n");
            }
            let function = self.chance.favourite(&functions);
            self.fill(function);
            self.fill("%/%/");
        }
    }

    /// A statement as a script has it time and again: most of its slots but the variables are filled for good.
    fn idiom(&mut self, template: &str) -> String {
        let mut parts = template.split('%');
        let mut idiom = parts.next().unwrap_or_default().to_owned();
        for part in parts {
            match (&part[..1], self.chance.below(3)) {
                ("l" | "q", 0..2) => idiom += self.chance.favourite::<String>(&self.labels),
                ("E", 0..2) => idiom += self.chance.favourite::<String>(&self.expressions),
                (slot, _) => idiom += &format!("%{slot}"),
            }
            idiom += &part[1..];
        }
        idiom
    }

    pub(super) fn block(&mut self) {
        self.nesting += 1;
        self.out.push('{');
        self.indent = self.indent.map(|indent| indent + 2);
        for _ in 0..1 + self.chance.zipf(if self.nesting < 3 { 3 } else { 2 }) {
            self.line();
            let statement = self.chance.favourite(&self.statements).clone();
            self.fill(if self.nesting > 3 && statement.contains("%B") { "return %v;" } else { &statement });
        }
        self.indent = self.indent.map(|indent| indent - 2);
        self.line();
        self.out.push('}');
        self.nesting -= 1;
    }

    pub(super) fn expression(&mut self) {
        self.nesting += 1;
        let expression =
            if self.nesting < 6 { self.chance.favourite(&self.expressions).clone() } else { "%v".to_owned() };
        self.fill(&expression);
        self.nesting -= 1;
    }
}

/// `template`, JavaScript, without the spaces that are not between two words.
fn minified(template: &str) -> String {
    let is_word = |character: Option<char>| character.is_some_and(|c| c.is_alphanumeric() || c == '%');
    let mut rest = template.chars().peekable();
    let mut minified = String::new();
    while let Some(character) = rest.next() {
        if character != ' ' || is_word(minified.chars().last()) && is_word(rest.peek().copied()) {
            minified.push(character);
        }
    }
    minified
}

/// What a script has at its outermost level, the most frequent first.
const FUNCTIONS: &str = r##"function %l(%v, %v) %B
%l.prototype.%l = function (%v) %B;
exports.%l = function (%v, %v) %B;
const %l = (%v, %v) => %B;
var %l = require("./%q-%q");
async function %l(%v) %B
module.exports.%l = %l;"##;

/// What a block is made of.
const STATEMENTS: &str = r##"var %v = %E;
const %v = %v.%l(%E);
let %v = %v.%l;
%v = %E;
%v.%l = %E;
return %E;
return this.%l(%v, %E);
if (%v.%l) %B
if (!%v) return %E;
if (%v === %E) %B else %B
if (typeof %v === "function") %B
if (%v.length > %0) %B
for (let %v = 0; %V < %v.length; %V++) %B
for (const %v of Object.keys(%v)) %B
%v.forEach(function (%v) %B);
%v.%l(%E, %E);
this.%l = %v;
this.%l.%l(%E);
throw new TypeError("%t");
try %B catch (%v) %B
%v.push(%E);
%v.addEventListener("%q", this.%l.bind(this));
while (%v = %v.%l) %B
%v.%l = %V.%l || {};
%l(%v, %E, (%v) => %B);
console.error("%w %w:", %v);
%v += %E;
document.querySelector(".%q-%q").classList.add("%q");"##;

/// What a value is.
const EXPRESSIONS: &str = r##"%v
%v.%l
%v.%l.%l
this.%l
%v.%l(%E)
%v[%E]
%0
%n
"%q"
"%w %w"
null
%v === "%q"
%v && %v.%l
%v || %E
!%v
%v + %E
{ %q: %E, %q: %E }
[%E, %E]
Object.assign({}, %v)
new %l(%E)
%v ? %E : %E
%l(%v, %v)
%v.map(function (%v) %B)
Math.max(%v, %E)"##;
