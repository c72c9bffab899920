//! What is left when the daemon is gone: nothing, and soon.

use std::time::{Duration, Instant};

use weirgate_linux::bpf::steer::undo;

use super::ground::{CHOSEN, Client, EVERYBODY, Ground, OWN, in_a_minute, policy};

/// Connections in the middle of a large response, all switched, with the rest of it to be read.
fn switched(ground: &Ground, count: usize) -> Vec<Client> {
    let mut clients: Vec<Client> = (0..count).map(|_| ground.connect("10.99.0.1")).collect();
    for client in &mut clients {
        client.send("send 3000000");
    }
    for client in &mut clients {
        client.read(600_000);
    }
    clients
}

#[test]
fn everything_goes_back_when_the_owner_is_killed_and_its_time_has_passed() {
    let Some(mut ground) = Ground::new(50) else { return };
    ground.serve();
    let owner = ground.owner(10);
    let attached = Instant::now();
    owner.kill().unwrap(); // SIGKILL
    owner.wait().unwrap();
    // It still acts: what is pinned stays.
    let mut clients = switched(&ground, 4);
    assert_eq!(ground.algorithms(), [CHOSEN; 4]);
    let mut idle = ground.connect("10.99.0.1");
    std::thread::sleep(Duration::from_secs(11).saturating_sub(attached.elapsed()));
    // Active ones with the next acknowledgements.
    for client in &mut clients {
        client.read(600_000);
    }
    assert_eq!(ground.algorithms(), [OWN; 5]);
    for client in &mut clients {
        client.read(1_800_000);
    }
    // New ones at once, idle ones when next active.
    let mut new = ground.connect("10.99.0.1");
    new.fetch(1_000_000);
    idle.fetch(1_000_000);
    assert_eq!(ground.algorithms(), [OWN; 6]);
    assert_eq!((new.idle_cc(), idle.idle_cc()), (OWN.to_owned(), OWN.to_owned()));
}

#[test]
fn undo_takes_all_back_at_once_after_a_kill() {
    let Some(mut ground) = Ground::new(50) else { return };
    ground.serve();
    let owner = ground.owner(600);
    owner.kill().unwrap(); // SIGKILL
    owner.wait().unwrap();
    let mut clients = switched(&ground, 4);
    assert_eq!(ground.algorithms(), [CHOSEN; 4]);
    let undone = undo(&ground.pin_dir, &[ground.server_again()]).unwrap();
    assert!(undone.found && undone.unwalked.is_empty());
    assert_eq!(undone.sockets_reset, 4);
    assert_eq!(ground.algorithms(), [OWN; 4]);
    assert!(!ground.pin_dir.exists());
    // And it stays so.
    for client in &mut clients {
        client.read(2_400_000);
        client.fetch(1_000_000);
        assert_eq!(client.idle_cc(), OWN);
    }
    assert!(!undo(&ground.pin_dir, &[]).unwrap().found);
}

#[test]
fn undo_prevails_over_an_owner_that_lives() {
    let Some(mut ground) = Ground::new(50) else { return };
    ground.serve();
    let mut steering = ground.attach();
    steering.apply(&policy(1, EVERYBODY), &[ground.server_again()]).unwrap();
    let _busy = switched(&ground, 2);
    undo(&ground.pin_dir, &[ground.server_again()]).unwrap();
    steering.renew(in_a_minute());
    assert_eq!(ground.algorithms(), [OWN; 2]);
    ground.connect("10.99.0.1").fetch(1_000_000);
    assert_eq!(ground.algorithms(), [OWN; 2]);
}

#[test]
fn a_new_run_takes_over_what_the_old_one_changed() {
    let Some(mut ground) = Ground::new(50) else { return };
    ground.serve();
    let here = [ground.server_again()];
    let owner = ground.owner(600);
    owner.kill().unwrap(); // SIGKILL
    owner.wait().unwrap();
    let mut clients = switched(&ground, 3);
    let mut steering = ground.attach_with(|_| {});
    // Attaching swept. Not the application's choice, though the kernel's flag says that somebody chose.
    let applied = steering.apply(&policy(1, EVERYBODY), &here).unwrap();
    assert_eq!(applied.sockets_set, 3);
    for client in &mut clients {
        client.read(2_400_000);
    }
    let counters = steering.counters().unwrap();
    // More than once where the server was held up between two writes: an empty queue ends a response.
    assert!(counters.exempt == 0 && counters.switched >= 3, "{counters:?}");
    let undone = steering.detach(&here).unwrap();
    assert!(undone.found && !ground.pin_dir.exists());
}

#[test]
fn a_renewal_after_the_expiry_says_so() {
    let Some(mut ground) = Ground::new(50) else { return };
    ground.serve();
    let here = [ground.server_again()];
    let mut steering = ground.attach();
    steering.apply(&policy(1, EVERYBODY), &here).unwrap();
    assert!(!steering.renew(in_a_minute()));
    let mut clients = switched(&ground, 2);
    let (reset, unwalked) = steering.sweep(&here);
    assert_eq!((reset, unwalked.len()), (2, 0));
    assert_eq!(ground.algorithms(), [OWN; 2]);
    assert!(steering.renew(in_a_minute()), "it had expired");
    assert_eq!(steering.sweep(&here).0, 0);
    // The policy is applied again, renewed or not, and they are taken up again.
    assert_eq!(steering.apply(&policy(1, EVERYBODY), &here).unwrap().sockets_set, 2);
    for client in &mut clients {
        client.read(1_000_000);
    }
    assert_eq!(ground.algorithms(), [CHOSEN; 2]);
    assert!(!steering.renew(in_a_minute()));
}
