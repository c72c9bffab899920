use weirgate_fabric::verify::{CHECKS, Form};

#[test]
fn every_check_holds() {
    let mut failed = Vec::new();
    for check in CHECKS {
        let finding = (check.run)(1, Form::Short);
        println!("{}: {} {} +- {}", check.name, finding.measured, finding.expected, finding.tolerance);
        for case in &finding.cases {
            println!("  {}: {} {} +- {}", case.name, case.measured, case.expected, case.tolerance);
        }
        if !finding.holds() {
            failed.push(check.name);
        }
    }
    assert!(failed.is_empty(), "{failed:?}");
}
