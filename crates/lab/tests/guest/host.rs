//! The other end of the guest's cable: a thread that answers ARP and echo requests, with a gate in front of it.

use std::collections::HashMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use weirgate_linux::vhost::{Completion, Frame, TransmitError, VhostUser};
use weirgate_linux::wait::Waiter;
use weirgate_port::Offload;
use weirgate_units::Duration;

/// The host's end.
#[derive(Default)]
pub(crate) struct Host {
    stop: AtomicBool,
    /// Nothing is read.
    pub(crate) gated: AtomicBool,
    /// Frames to this UDP port are held instead of given back.
    pub(crate) hold: Mutex<Option<u16>>,
    pub(crate) held: Mutex<Vec<Completion>>,
    /// UDP frames by destination port.
    pub(crate) udp: Mutex<HashMap<u16, u64>>,
}

const MAC: [u8; 6] = [0x52, 0x54, 0, 0, 0, 1];

impl Host {
    /// Answers while `during` runs.
    pub(crate) fn answer<T>(&self, device: &VhostUser, during: impl FnOnce() -> T) -> T {
        self.stop.store(false, Ordering::Relaxed);
        std::thread::scope(|scope| {
            scope.spawn(|| self.run(device));
            let stop = StopOnDrop(self);
            let result = during();
            drop(stop);
            result
        })
    }

    fn run(&self, device: &VhostUser) {
        let mut waiter = Waiter::new().expect("epoll works");
        for queue in 0..device.queues() {
            waiter.add(device.queue_fd(queue), queue.into()).expect("can be waited for");
        }
        while !self.stop.load(Ordering::Relaxed) {
            let ready: Vec<u64> = waiter.wait(Some(Duration::from_millis(20))).expect("waits").collect();
            for queue in ready {
                device.events(queue as u16);
            }
            for queue in 0..device.queues() {
                let mut more = true;
                while more && !self.gated.load(Ordering::Relaxed) {
                    more = self.turn(device, queue);
                }
            }
        }
    }

    fn turn(&self, device: &VhostUser, queue: u16) -> bool {
        let received = device.receive(queue, 64, &mut |frame| {
            if let Some(port) = udp_port(frame.bytes) {
                *self.udp.lock().expect("no panic").entry(port).or_default() += 1;
                if *self.hold.lock().expect("no panic") == Some(port) {
                    self.held.lock().expect("no panic").push(frame.hold());
                }
            } else if let Some(answer) = answer(frame) {
                match device.transmit(queue, Offload::default(), &answer) {
                    Ok(()) | Err(TransmitError::Down | TransmitError::Full) => {}
                    Err(e) => panic!("{e}"),
                }
            }
        });
        received.more
    }
}

struct StopOnDrop<'a>(&'a Host);

impl Drop for StopOnDrop<'_> {
    fn drop(&mut self) {
        self.0.stop.store(true, Ordering::Relaxed);
    }
}

fn udp_port(frame: &[u8]) -> Option<u16> {
    let udp = frame.get(12..14)? == [8, 0] && frame.get(23)? == &17;
    if udp { Some(u16::from_be_bytes([*frame.get(36)?, *frame.get(37)?])) } else { None }
}

/// Who has 10.77.0.1, and its echo.
fn answer(frame: &Frame<'_>) -> Option<Vec<u8>> {
    let mut answer = frame.bytes.to_vec();
    answer.copy_within(6..12, 0);
    answer[6..12].copy_from_slice(&MAC);
    match answer.get(12..14)? {
        // ARP request for us: sender becomes target.
        [8, 6] if answer.get(20..22)? == [0, 1] && answer.get(38..42)? == [10, 77, 0, 1] => {
            answer[21] = 2;
            answer.copy_within(22..32, 32);
            answer[22..28].copy_from_slice(&MAC);
            answer[28..32].copy_from_slice(&[10, 77, 0, 1]);
            Some(answer)
        }
        // ICMP echo request: the checksum grows by what the type loses.
        [8, 0] if answer.get(23)? == &1 && answer.get(34)? == &8 => {
            let (from, to): ([u8; 4], [u8; 4]) = (answer[26..30].try_into().ok()?, answer[30..34].try_into().ok()?);
            answer[26..30].copy_from_slice(&to);
            answer[30..34].copy_from_slice(&from);
            answer[34] = 0;
            let sum = u32::from(u16::from_be_bytes([answer[36], answer[37]])) + 0x800;
            answer[36..38].copy_from_slice(&((sum + (sum >> 16)) as u16).to_be_bytes());
            Some(answer)
        }
        _ => None,
    }
}
