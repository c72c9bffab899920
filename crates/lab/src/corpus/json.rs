//! Answers of an API: an array of records of several kinds, in lines or in one.

use super::Text;

impl Text {
    pub(super) fn answer(&mut self) {
        let is_broken = self.indent.is_some();
        let shape = |template: &str| if is_broken { broken(template) } else { template.to_owned() };
        let (open, next, close) =
            if is_broken { ("\n    {\n      ", ",\n      ", "\n    },") } else { ("{", ",", "},") };
        // By kinds of records, their fields, of each the values that are in use, the most frequent first: authors, categories, prices
        // are few. A value with slots is another in every record.
        let mut kinds = Vec::new();
        for _ in 0..7 {
            let mut fields = vec![vec![shape("\"id\":%i")], vec![self.filled(&shape("\"type\":\"%q\""))]];
            let count = 2 + self.chance.below(6);
            for (field, values) in self.chance.some(FIELDS, count).into_iter().zip([7, 1, 15].into_iter().cycle()) {
                let field = shape(field);
                fields.push(if values == 1 { vec![field] } else { (0..values).map(|_| self.filled(&field)).collect() });
            }
            kinds.push(fields);
        }
        self.fill("{\"status\":\"ok\",\"request_id\":\"%H\",\"total\":%n,\"next\":\"/api/v2/%q?cursor=%H\",\"data\":[");
        while self.out.len() < self.size {
            for (i, values) in self.chance.favourite(&kinds).iter().enumerate() {
                self.fill(if i == 0 { open } else { next });
                let value = self.chance.favourite(values);
                self.fill(value);
            }
            self.fill(close);
        }
    }
}

/// `template`, JSON, in lines as pretty printers make them.
fn broken(template: &str) -> String {
    let mut broken = String::new();
    let mut depth = 3;
    for character in template.chars() {
        let line = |depth| format!("\n{}", "  ".repeat(depth));
        match character {
            '{' | '[' => {
                depth += 1;
                broken += &format!("{character}{}", line(depth));
            }
            '}' | ']' => {
                depth -= 1;
                broken += &format!("{}{character}", line(depth));
            }
            ',' => broken += &format!(",{}", line(depth)),
            ':' if broken.ends_with('"') => broken += ": ",
            _ => broken.push(character),
        }
    }
    broken
}

/// Fields of a record.
const FIELDS: &str = r##""title":"%r"
"description":"%s"
"name":"%N"
"slug":"%u"
"url":"https://api.example.com/v2/%q/%I"
"html_url":"https://www.example.com/%u"
"uuid":"%H"
"etag":"%h"
"created_at":"%dZ"
"updated_at":"%dZ"
"status":"%o"
"is_active":%b
"deleted":false
"parent_id":null
"count":%n
"score":%f
"price":{"amount":%f,"currency":"EUR"}
"location":{"lat":%f,"lon":%f,"city":"%N"}
"author":{"id":%n,"name":"%N","avatar_url":"https://cdn.example.com/u/%n.png","type":"user"}
"tags":["%q","%q","%w"]
"category":"%q"
"links":{"self":"/v2/%q/%I","related":"/v2/%q/%I/related"}
"language":"en"
"permissions":{"read":true,"write":%b,"admin":false}
"position":%I
"thumbnail":"/media/%I/%3x%3.jpg""##;
