//! Divergences in shapes that the golden traces do not hold, and what must not pass for one.

use super::{replayed, scenario, told};

/// A golden scenario up to a line that has this text, and that line.
fn up_to(file: &str, name: &str, text: &str) -> Vec<String> {
    let mut lines = scenario(file, name);
    let last = lines.iter().position(|line| line.contains(text)).unwrap();
    lines.truncate(last + 1);
    lines
}

#[test]
fn a_divergence_is_named_at_its_record() {
    let find = |file, name| told(&replayed(&scenario(file, name)));
    let first = |file, name| find(file, name).into_iter().next();
    let async_v3 = "async_v3.jsonl.gz";
    assert_eq!(find(async_v3, "size_zero"), ["7 memcpy_mc_async zero-size"]);
    assert_eq!(
        first(async_v3, "oversize_in_chain").as_deref(),
        Some("8 memcpy_mc_async async-oversize")
    );
    assert_eq!(
        first(async_v3, "restart_while_in_flight").as_deref(),
        Some("9 memcpy_mc_async restart-in-flight")
    );
    assert_eq!(
        first("timing_v3.jsonl.gz", "hang").as_deref(),
        Some("7 buf_to_mc timeout")
    );
    assert_eq!(
        first("init_v3.jsonl", "odd_nc_only").as_deref(),
        Some("2 init_ncs lone-core")
    );
}

#[test]
fn a_copy_of_nothing_in_a_chain_cannot_be_followed_and_taints() {
    let mut lines = scenario("async_v3.jsonl.gz", "chain")[..8].to_vec();
    lines[7] = lines[7].replace(r#""size":65536"#, r#""size":0"#);
    let report = replayed(&lines);
    assert_eq!(told(&report), ["8 memcpy_mc_async zero-size"]);
    lines.push(scenario("async_v3.jsonl.gz", "chain")[8].clone());
    assert_eq!(replayed(&lines).counts.tainted_records, 1);
}

#[test]
fn an_oversize_copy_that_the_reference_refuses_at_once_is_no_divergence() {
    let mut lines = up_to("async_v3.jsonl.gz", "limit_exact", "memcpy_mc_async");
    let refused = r#"{"op":"memcpy_mc_async","src":"H","src_off":0,"dst":"D","dst_off":0,"size":133169153,"prev":-1,"ret":0}"#;
    *lines.last_mut().unwrap() = refused.to_owned();
    let report = replayed(&lines);
    assert!(report.counts.divergences.is_empty());
    assert_eq!(told(&report).first().unwrap(), "7 memcpy_mc_async ret");
}

#[test]
fn a_copy_that_only_glia_finds_late_is_a_mismatch() {
    let mut lines = up_to("timing_v3.jsonl.gz", "late_last_poll", "buf_to_mc");
    for line in &mut lines {
        *line = line.replace(r#""modes":["late:19902"]"#, r#""modes":["late:19903"]"#);
    }
    let report = replayed(&lines);
    assert!(report.counts.divergences.is_empty());
    let found = told(&report);
    assert!(found.contains(&"8 buf_to_mc ret".to_owned()), "{found:?}");
}

#[test]
fn a_retry_is_not_replayed_and_taints() {
    let report = replayed(&scenario("retry_v2.jsonl.gz", "never_reset_retry"));
    assert_eq!(told(&report)[0], "10 buf_to_mc retry");
    assert_eq!(report.counts.tainted_records, 1);
    assert_eq!(report.counts.mismatches, 0);
}

#[test]
fn an_engine_on_another_ring_base_is_told_by_its_registers() {
    let mut lines = up_to("init_v2.jsonl", "bring_up_all", "h2t_ring_init");
    let last = lines.last_mut().unwrap();
    *last = last.replace(
        r#"["w","30601028","18124000"]"#,
        r#"["w","30601028","18125000"]"#,
    );
    assert_eq!(told(&replayed(&lines)), ["3 h2t_ring_init regs[3][2]"]);
}
