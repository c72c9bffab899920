//! One datagram of `NETLINK_SOCK_DIAG`.
#![no_main]

use libfuzzer_sys::fuzz_target;
use weirgate_sockets::sample::{CcName, Kind, Sample, flag};
use weirgate_sockets::wire::diag::{Context, View};
use weirgate_sockets::wire::emit;
use weirgate_sockets::wire::frame::{Messages, Reply};
use zerocopy::IntoBytes;

const CONTEXT: Context = Context { kind: Kind::Poll, time_ns: 1, netns: 2 };

fuzz_target!(|datagram: &[u8]| {
    for message in Messages::new(datagram) {
        let Ok(Ok(Reply::Socket(payload))) = message.map(|m| m.reply()) else { continue };
        let Ok(view) = View::new(payload) else { continue };
        let Ok(sample) = Sample::from_diag(&view, CONTEXT) else { continue };
        assert_eq!(sample.netns, CONTEXT.netns);
        let _ = (sample.local(), sample.remote(), sample.cc.as_str(), sample.flags & flag::ECN);

        // Written as the newest kernel would, it gives every field of `tcp_info`; of what was given, nothing changes.
        let mut bytes = Vec::new();
        emit::socket(&mut bytes, &sample, 280);
        let view = View::new(&bytes).expect("what is emitted is whole");
        let mut again = Sample::from_diag(&view, CONTEXT).expect("what is emitted can be read");
        assert_eq!(again.given | sample.given, again.given);
        again.given = sample.given;
        // A name that is not UTF-8 is not written.
        if sample.cc.as_str().is_empty() {
            again.cc = CcName::from_kernel(sample.cc.as_bytes());
        }
        assert_eq!(again.as_bytes(), sample.as_bytes());
    }
});
