#![allow(clippy::disallowed_methods, reason = "a process and a device run beside each other, and by a clock")]

use std::mem::MaybeUninit;
use std::os::fd::{AsFd as _, AsRawFd as _, FromRawFd as _, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use super::*;
use crate::count::Reason;
use crate::engine::{Engine as _, Inflater, bound};

/// The device's memory, as a file and mapped.
fn memory(instances: u32) -> (OwnedFd, Memory) {
    Memory::make(instances, BODY_MAX).unwrap()
}

fn real() -> u64 {
    let mut at = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: it writes to `at`.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut at) };
    at.tv_sec as u64 * 1_000_000_000 + at.tv_nsec as u64
}

fn nap(nanos: u64) {
    thread::sleep(Duration::from_nanos(nanos));
}

/// Patient enough for a test's device that another test keeps from its processor.
const PATIENT: Patience = Patience { wait_max: 20_000_000_000, spin: 20_000 };

/// A body like no other one, of which half repeats.
fn body(seed: usize, len: usize) -> Vec<u8> {
    (0..len).map(|n| if n % 2 == 0 { b'a' } else { (seed.wrapping_mul(n) >> 3) as u8 }).collect()
}

/// A process's side: a client and one thread's place.
struct Process {
    client: Client,
    holder: Holder,
}

impl Process {
    fn new(file: &OwnedFd, patience: Patience) -> Self {
        let process = Self { client: Client::new(patience, real, nap), holder: Holder::default() };
        process.client.attach(Memory::open(file.as_fd()).unwrap(), real());
        process
    }

    fn compress(&mut self, body: &[u8]) -> Result<Vec<u8>, Reason> {
        let mut out = vec![MaybeUninit::uninit(); bound(body.len())];
        let len = self.client.device(&mut self.holder, 6).compress(body, &mut out)?;
        // SAFETY: the answer's bytes were written.
        let raw = unsafe { out[..len].assume_init_ref() };
        let mut inflated = Vec::new();
        assert!(Inflater::new().unwrap().inflate(raw, body.len(), &mut inflated) && inflated == body);
        Ok(raw.to_vec())
    }
}

/// Has a device run while `what` does.
fn beside<T>(mut device: Simulated, what: impl FnOnce() -> T) -> (T, Simulated) {
    let ended = AtomicBool::new(false);
    device.step(real());
    thread::scope(|scope| {
        let ended = &ended;
        let device = scope.spawn(move || {
            while !ended.load(Ordering::Relaxed) {
                match device.step(real()) {
                    Step::Idle => thread::sleep(Duration::from_micros(50)),
                    Step::Busy => {}
                    Step::Crashed => break,
                }
            }
            device
        });
        let result = what();
        ended.store(true, Ordering::Relaxed);
        (result, device.join().unwrap())
    })
}

#[test]
fn bodies_come_back_compressed_from_several_processes() {
    let (file, memory) = memory(4);
    let device = Simulated::new(Server::new(memory), 100_000, Faults::default());
    let ((), device) = beside(device, || {
        thread::scope(|scope| {
            for seed in 0..4 {
                let file = &file;
                scope.spawn(move || {
                    let mut process = Process::new(file, PATIENT);
                    for len in [1, 4_000, 88_000, BODY_MAX] {
                        assert!(process.compress(&body(seed + len, len)).unwrap().len() <= bound(len));
                    }
                    assert_eq!(process.compress(&vec![0; BODY_MAX + 1]), Err(Reason::Long));
                    assert_eq!(process.client.held(), 1);
                    process.holder = Holder::default();
                    assert_eq!(process.client.held(), 0);
                });
            }
        });
    });
    assert_eq!(device.in_use(), 0, "who has ended gives its instance back");
}

#[test]
fn every_fault_leaves_the_body_with_its_caller_and_is_named() {
    let of = |faults: Faults, patience: Patience, bodies: usize| {
        let (file, memory) = memory(1);
        let device = Simulated::new(Server::new(memory), 0, faults);
        let (reasons, _) = beside(device, || {
            let mut process = Process::new(&file, patience);
            (0..bodies).map(|n| process.compress(&body(n, 9_000)).err()).collect::<Vec<_>>()
        });
        reasons
    };
    let none = Faults::default();
    let wrong = of(Faults { wrong_every: 2, ..none }, PATIENT, 6);
    assert_eq!(wrong, [None, Some(Reason::Wrong), None, Some(Reason::Wrong), None, Some(Reason::Wrong)]);
    assert_eq!(of(Faults { fail_every: 2, ..none }, PATIENT, 2), [None, Some(Reason::Failed)]);
    let hasty = Patience { wait_max: 200_000_000, ..PATIENT };
    let slow = of(Faults { slow_every: 2, slow: 1_000_000_000, ..none }, hasty, 3);
    assert_eq!(slow, [None, Some(Reason::Late), Some(Reason::Late)], "it is still at the second one");
    let crash = of(Faults { crash_every: 2, ..none }, hasty, 3);
    assert_eq!(crash, [None, Some(Reason::Late), Some(Reason::Gone)]);
}

#[test]
fn who_fails_again_and_again_is_left_alone_for_a_while() {
    let (file, memory) = memory(1);
    let device = Simulated::new(Server::new(memory), 0, Faults { fail_every: 1, ..Faults::default() });
    let (reasons, _) = beside(device, || {
        let mut process = Process::new(&file, PATIENT);
        let reasons: Vec<_> = (0..4).map(|n| process.compress(&body(n, 100)).err()).collect();
        thread::sleep(Duration::from_millis(30));
        [reasons, vec![process.compress(&body(9, 100)).err()]].concat()
    });
    let failed = Some(Reason::Failed);
    assert_eq!(reasons, [failed, failed, failed, Some(Reason::Paused), failed]);
}

#[test]
fn a_device_that_is_gone_is_not_waited_for_and_one_that_is_back_is_used() {
    let (file, first) = memory(1);
    let device = Simulated::new(Server::new(first), 0, Faults::default());
    let (mut process, _) = beside(device, || {
        let mut process = Process::new(&file, PATIENT);
        process.compress(&body(1, 100)).unwrap();
        process
    });
    thread::sleep(Duration::from_nanos(2 * ALIVE));
    assert_eq!(process.compress(&body(2, 100)), Err(Reason::Gone));
    assert!(!process.client.is_alive(real()));
    let (file, second) = memory(1);
    let (result, _) = beside(Simulated::new(Server::new(second), 0, Faults::default()), || {
        process.client.attach(Memory::open(file.as_fd()).unwrap(), real());
        process.compress(&body(3, 100))
    });
    assert!(result.is_ok(), "{result:?}");
}

#[test]
fn what_a_device_does_not_get_is_missed_from_when_it_is_known_to_be_there() {
    let mut process = Process { client: Client::new(PATIENT, real, nap), holder: Holder::default() };
    assert!(!process.client.takes(1), "on a host without one nothing is");
    process.client.expect();
    assert!(process.client.takes(BODY_MAX) && !process.client.takes(BODY_MAX + 1));
    assert_eq!(process.compress(&body(1, 100)), Err(Reason::Gone));
    // It does not live yet.
    let (file, memory) = Memory::make(1, 1_000).unwrap();
    process.client.attach(Memory::open(file.as_fd()).unwrap(), real());
    assert_eq!(process.compress(&body(2, 100)), Err(Reason::Gone));
    let (result, _) = beside(Simulated::new(Server::new(memory), 0, Faults::default()), || {
        process.client.attach(Memory::open(file.as_fd()).unwrap(), real());
        process.client.expect();
        [process.compress(&body(3, 100)).err(), process.compress(&body(3, 1_001)).err()]
    });
    assert_eq!(result, [None, Some(Reason::Long)]);
}

#[test]
fn a_device_without_levels_says_so() {
    for (memory, has_levels) in [(memory(1), true), (memory(1), false)] {
        let (file, memory) = memory;
        let memory = if has_levels { memory } else { memory.without_levels() };
        Server::new(memory).beat(real());
        assert_eq!(Process::new(&file, PATIENT).client.has_levels(), has_levels);
    }
}

#[test]
fn a_child_uses_the_device_of_its_own_time() {
    let (first_file, first) = memory(1);
    let device = Simulated::new(Server::new(first), 0, Faults::default());
    let (parent, device) = beside(device, || {
        let mut parent = Process::new(&first_file, PATIENT);
        parent.compress(&body(1, 100)).unwrap();
        parent
    });
    // The device comes again, and then the child begins, with its parent's memory and a client of its own.
    parent.client.forked();
    let (second_file, second) = memory(1);
    let (result, second) = beside(Simulated::new(Server::new(second), 0, Faults::default()), || {
        let mut child = Process::new(&second_file, PATIENT);
        child.holder = parent.holder;
        let result = child.compress(&body(2, 100));
        assert_eq!(child.client.held(), 1);
        std::mem::forget(child.holder);
        result
    });
    assert!(result.is_ok(), "{result:?}");
    assert_eq!((device.in_use(), second.in_use()), (1, 1), "the parent's is the parent's");
}

#[test]
fn a_device_of_a_time_to_come_is_none() {
    let (file, memory) = memory(1);
    Server::new(memory).beat(1 << 63);
    assert!(!Memory::open(file.as_fd()).unwrap().is_alive(real()));
}

#[test]
fn where_all_instances_are_taken_the_next_one_has_none_until_one_is_given_back() {
    let (file, memory) = memory(2);
    let device = Simulated::new(Server::new(memory), 0, Faults::default());
    beside(device, || {
        let mut all: Vec<Process> = (0..3).map(|_| Process::new(&file, PATIENT)).collect();
        assert!(all[0].compress(&body(1, 100)).is_ok() && all[1].compress(&body(2, 100)).is_ok());
        for _ in 0..5 {
            assert_eq!(all[2].compress(&body(3, 100)), Err(Reason::Exhausted));
        }
        all.remove(0);
        assert!(all[1].compress(&body(4, 100)).is_ok());
        // A child has its parent's memory, and no instance of it.
        all[1].client.forked();
        assert_eq!(all[1].client.held(), 0);
        assert_eq!(all[1].compress(&body(5, 100)), Err(Reason::Exhausted));
        assert!(all[0].compress(&body(6, 100)).is_ok());
    });
}

#[test]
fn an_instance_of_a_process_that_is_gone_is_taken_back_after_its_lease() {
    let (file, memory) = memory(1);
    let mut server = Server::new(memory);
    let now = real();
    server.beat(now);
    let mut gone = Process::new(&file, Patience { wait_max: 0, spin: 0 });
    // Nobody answers: it takes the body back.
    assert_eq!(gone.compress(&body(1, 100)), Err(Reason::Late));
    let mut other = Process::new(&file, Patience { wait_max: 0, spin: 0 });
    assert_eq!(other.compress(&body(1, 100)), Err(Reason::Exhausted));
    server.reclaim(now + LEASE / 2);
    assert_eq!(server.in_use(), 1);
    server.reclaim(now + LEASE + 1_000_000_000);
    assert_eq!(server.in_use(), 0);
    assert_eq!(other.compress(&body(1, 100)), Err(Reason::Late), "it has it, and nobody answers");
    assert_eq!(gone.compress(&body(1, 100)), Err(Reason::Exhausted), "what was its own is another's");
    assert!(server.take(&mut Vec::new()).is_none());
}

#[test]
fn who_waits_for_long_looks_less_often() {
    static NOW: AtomicU64 = AtomicU64::new(1_000_000_000);
    static NAPS: AtomicU64 = AtomicU64::new(0);
    fn clock() -> u64 {
        NOW.fetch_add(100, Ordering::Relaxed)
    }
    fn nap(nanos: u64) {
        NAPS.fetch_add(1, Ordering::Relaxed);
        NOW.fetch_add(nanos, Ordering::Relaxed);
    }
    let (file, memory) = memory(1);
    let mut server = Server::new(memory);
    let wait_max = ALIVE / 2;
    let mut process =
        Process { client: Client::new(Patience { wait_max, spin: 20_000 }, clock, nap), holder: Holder::default() };
    let began = clock();
    server.beat(began);
    process.client.attach(Memory::open(file.as_fd()).unwrap(), began);
    assert_eq!(process.compress(&body(1, 100)), Err(Reason::Late));
    let (waited, naps) = (clock() - began, NAPS.load(Ordering::Relaxed));
    assert!((wait_max..wait_max + wait_max / 8).contains(&waited), "{waited} ns");
    assert!((50..150).contains(&naps), "{naps}, where steps of 20 us are 2,500");
}

#[test]
fn nonsense_in_the_memory_harms_nobody() {
    let (file, memory) = memory(2);
    let mut seed = 1_u64;
    let mut random = || {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        seed >> 33
    };
    let mut server = Server::new(memory);
    for _ in 0..2_000 {
        // SAFETY: a mapping of its own of the whole file, which nobody else writes to now.
        unsafe {
            let len = Memory::len_of(2);
            let prot = libc::PROT_READ | libc::PROT_WRITE;
            let at = libc::mmap(std::ptr::null_mut(), len, prot, libc::MAP_SHARED, file.as_raw_fd(), 0).cast::<u8>();
            // Instances begin with the second page.
            for _ in 0..8 {
                *at.add(4_096 + random() as usize % 128) = random() as u8;
            }
            libc::munmap(at.cast(), len);
        }
        server.beat(real());
        let mut taken = Vec::new();
        if let Some(job) = server.take(&mut taken) {
            assert!(taken.len() <= BODY_MAX && (1..=9).contains(&job.level));
            server.answer(&job, Some(b"nonsense"));
        }
        server.reclaim(real());
        let mut process = Process::new(&file, Patience { wait_max: 0, spin: 0 });
        let result = process.compress(&body(1, 100));
        assert!(result.is_err(), "{result:?}");
    }
    let other = Memory::open(file.as_fd()).unwrap();
    assert_eq!(other.instances(), 2);
    assert!(Memory::open(std::fs::File::open("/dev/null").unwrap().as_fd()).is_err());
    // SAFETY: the file is open.
    let cut = unsafe { libc::ftruncate(file.as_raw_fd(), 0) };
    assert!(cut < 0, "nobody cuts it off");
    // One that could be is not mapped.
    // SAFETY: makes a file of its own.
    let other = unsafe { OwnedFd::from_raw_fd(libc::memfd_create(c"other".as_ptr(), libc::MFD_CLOEXEC)) };
    // SAFETY: the file is open.
    assert_eq!(unsafe { libc::ftruncate(other.as_raw_fd(), Memory::len_of(2) as i64) }, 0);
    assert_eq!(Memory::open(other.as_fd()).unwrap_err().kind(), std::io::ErrorKind::InvalidData);
}

/// A GPU that takes bodies of up to 64 KB, and for each batch so long.
#[derive(Default)]
struct Gpu {
    batches: Vec<usize>,
    latency: Duration,
}

impl crate::nvcomp::Batch for Gpu {
    fn compress(&mut self, bodies: &mut [crate::nvcomp::Body<'_>]) {
        self.batches.push(bodies.len());
        thread::sleep(self.latency);
        for body in bodies {
            let mut out = vec![MaybeUninit::uninit(); bound(body.input().len())];
            let len = crate::engine::Libdeflate::new(1).unwrap().compress(body.input(), &mut out).unwrap();
            // SAFETY: an engine's output is initialised.
            body.set(Some(unsafe { out[..len].assume_init_ref() }));
        }
    }
}

#[test]
fn what_is_posted_together_is_compressed_together() {
    let (file, memory) = Memory::make(3, 64 << 10).unwrap();
    let mut device = Batched::new(Server::new(memory), Gpu::default(), 2);
    assert_eq!(device.step(real()), Step::Idle);
    thread::scope(|scope| {
        let threads: Vec<_> = (0..3)
            .map(|n| {
                let file = &file;
                scope.spawn(move || {
                    let mut process = Process::new(file, PATIENT);
                    assert_eq!(process.compress(&body(n, 70_000)), Err(Reason::Long));
                    process.compress(&body(n, 60_000)).is_ok()
                })
            })
            .collect();
        while !threads.iter().all(thread::ScopedJoinHandle::is_finished) {
            device.step(real());
        }
        assert!(threads.into_iter().all(|thread| thread.join().unwrap()));
    });
    let batches = &device.engine().batches;
    assert!(batches.iter().sum::<usize>() == 3 && batches.iter().all(|count| *count <= 2), "{batches:?}");
}

#[test]
fn a_device_lives_while_it_is_at_a_long_batch() {
    let (file, memory) = memory(1);
    let open = || Memory::open(file.as_fd()).unwrap();
    let engine = Gpu { latency: Duration::from_nanos(3 * ALIVE), ..Gpu::default() };
    let mut device = Batched::new(Server::new(memory), engine, 1);
    let pulse = device.pulse(open());
    device.step(real());
    thread::sleep(Duration::from_nanos(2 * ALIVE));
    assert!(pulse.beat(real()) && !open().is_alive(real()), "one that is at none speaks for itself");
    let was_alive = AtomicBool::new(true);
    thread::scope(|scope| {
        device.step(real());
        let client = scope.spawn(|| Process::new(&file, PATIENT).compress(&body(1, 100)));
        let device = scope.spawn(|| while device.step(real()) != Step::Busy {});
        while !device.is_finished() {
            pulse.beat(real());
            was_alive.fetch_and(open().is_alive(real()), Ordering::Relaxed);
            thread::sleep(Duration::from_millis(10));
        }
        assert!(client.join().unwrap().is_ok() && was_alive.load(Ordering::Relaxed));
    });
    device.began.store(real() - 6_000_000_000, Ordering::Relaxed);
    thread::sleep(Duration::from_nanos(2 * ALIVE));
    assert!(!pulse.beat(real()) && !open().is_alive(real()), "a batch that does not end is no life");
}
