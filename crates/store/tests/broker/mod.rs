//! Apache Kafka, started by `scripts/services.sh`.

use std::fs;
use std::path::Path;
use std::process::Command;

use weirgate_store::export::{Sasl, Security};

/// A broker of this test's own, which ends with it.
pub(crate) struct Broker {
    pub(crate) folder: tempfile::TempDir,
}

impl Broker {
    /// `None` where Kafka cannot be had, which was said then.
    pub(crate) fn start() -> Option<Self> {
        let folder = tempfile::tempdir().unwrap();
        let broker = Self { folder };
        broker.script("start").then_some(broker)
    }

    /// False where there is no Kafka.
    pub(crate) fn script(&self, what: &str) -> bool {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scripts/services.sh");
        let output = Command::new(script).arg(what).arg(self.folder.path()).arg("kafka").output().unwrap();
        match output.status.code() {
            Some(0) => true,
            Some(77) => {
                println!("SKIPPED: {}", String::from_utf8_lossy(&output.stderr).trim());
                false
            }
            _ => panic!("services.sh {what}: {}", String::from_utf8_lossy(&output.stderr)),
        }
    }

    pub(crate) fn env(&self, name: &str) -> String {
        let text = fs::read_to_string(self.folder.path().join("env")).unwrap();
        let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix('='));
        line.unwrap_or_else(|| panic!("no {name} in {text}")).to_owned()
    }

    /// TLS, with a name and a password; of the broker at `KAFKA_TLS`.
    pub(crate) fn security(&self) -> Security {
        let password = fs::read_to_string(self.folder.path().join("password")).unwrap().trim().to_owned();
        Security {
            tls: true,
            ca: Some(self.folder.path().join("ca.pem")),
            certificate: None,
            sasl: Some(Sasl { mechanism: "SCRAM-SHA-512", user: "weirgate".into(), password }),
        }
    }
}

impl Drop for Broker {
    fn drop(&mut self) {
        self.script("stop");
    }
}
