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
        Some("5 buf_to_mc lone-core")
    );
    assert_eq!(
        first("retry_v2.jsonl.gz", "sync_during_async").as_deref(),
        Some("11 memcpy_mc lost-sibling")
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
fn a_retry_that_stages_something_else_is_a_mismatch() {
    let mut lines = up_to("retry_v2.jsonl.gz", "sync_during_async", "\"memcpy_mc\"");
    let last = lines.last_mut().unwrap();
    let at = last.rfind(r#""fnv":"21e4"#).unwrap();
    last.replace_range(at..at + 11, r#""fnv":"21e5"#);
    let report = replayed(&lines);
    assert!(report.counts.divergences.is_empty());
    assert_eq!(told(&report), ["11 memcpy_mc batches[1]"]);
}

#[test]
fn a_copy_that_the_reference_tries_for_ever_is_tried_four_times() {
    let mut lines = up_to("retry_v2.jsonl.gz", "never_reset_retry", "buf_to_mc");
    for line in &mut lines {
        *line = line.replace(r#""modes":["hang","normal"]"#, r#""modes":["hang"]"#);
    }
    let last = lines.last_mut().unwrap();
    let mut record: serde_json::Value = serde_json::from_str(last).unwrap();
    for list in ["waits", "batches"] {
        let first = record[list][0].clone();
        let tries = (0..7).map(|number| {
            let mut item = first.clone();
            item["at"] = (number * 39_903).into();
            item
        });
        record[list] = tries.collect();
    }
    *last = record.to_string();
    let line = lines.len();
    let report = replayed(&lines);
    assert_eq!(told(&report), [format!("{line} buf_to_mc retry-limit")]);
    record["batches"][3]["built"] = 3.into();
    *lines.last_mut().unwrap() = record.to_string();
    assert_eq!(
        told(&replayed(&lines)),
        [format!("{line} buf_to_mc batches[3].built")]
    );
}

#[test]
fn the_request_for_a_state_that_there_is_none_of_succeeds_in_the_reference() {
    let mut lines = scenario("lowlevel_v3.jsonl.gz", "user_ring")[..2].to_vec();
    let request = r#"{"op":"set_engine_state","eng":5,"state":7,"ret":0,"t":[0,0]}"#;
    lines.push(request.to_owned());
    assert_eq!(told(&replayed(&lines)), ["3 set_engine_state engine-state"]);
    lines[2] = request.replace(r#""ret":0"#, r#""ret":-1"#);
    assert_eq!(told(&replayed(&lines)), ["3 set_engine_state ret"]);
}

#[test]
fn a_process_that_goes_twice_gives_its_queues_up_once() {
    let mut lines = up_to(
        "lowlevel_v3.jsonl.gz",
        "process_exit",
        "process_exit\",\"pid\"",
    );
    let line = lines.len() + 1;
    lines.push(lines.last().unwrap().clone());
    let report = replayed(&lines);
    assert_eq!(told(&report), [format!("{line} process_exit kept-owner")]);
    lines[line - 1] = lines[line - 1].replace(r#""82503028","180f0000""#, r#""82503028","0""#);
    assert_eq!(
        told(&replayed(&lines)),
        [format!("{line} process_exit regs[3][2]")]
    );
}

#[test]
fn descriptors_that_only_the_reference_refuses_part_the_two() {
    let mut lines = scenario("descriptors_v3.jsonl.gz", "copy_in")[..2].to_vec();
    let rest = [
        r#"{"op":"chunk","name":"Q","where":"device","size":4096,"nc":0,"pa":"1000000"}"#,
        r#"{"op":"buffer","name":"K","size":4096,"pa":"100005000"}"#,
        r#"{"op":"put_descriptor","name":"K","index":0,"words":"0d000040:01080003:0000400012345000"}"#,
        r#"{"op":"put_descriptor","name":"K","index":4,"words":"0d000040:01080003:0000000001100000"}"#,
        r#"{"op":"copy_descriptors","buf":"K","src_off":64,"dst":"Q","dst_off":0,"size":16,"type":0,"ret":-22}"#,
        r#"{"op":"hash","name":"Q","off":0,"len":16,"fnv":"0"}"#,
    ];
    lines.extend(rest.map(str::to_owned));
    let report = replayed(&lines);
    assert_eq!(
        told(&report),
        ["7 copy_descriptors descriptor-walk", "8 hash fnv"]
    );
    assert_eq!(report.counts.mismatches, 0);
    lines[4] = lines[4].replace("0000400012345000", "0000000001200000");
    assert!(told(&replayed(&lines)).contains(&"7 copy_descriptors ret".to_owned()));
}

#[test]
fn a_ring_that_was_set_up_afresh_ends_the_taint_of_its_time_out() {
    let lines = up_to(
        "timing_v3.jsonl.gz",
        "device_to_device_wait",
        "h2t_ring_init",
    );
    let mut missing = lines[..lines.len() - 1].to_vec();
    let next = scenario("timing_v3.jsonl.gz", "device_to_device_wait")[lines.len() + 1].clone();
    let mut whole = lines;
    whole.push(next.clone());
    missing.push(next);
    assert_eq!(replayed(&whole).counts.tainted_records, 1);
    assert_eq!(replayed(&missing).counts.tainted_records, 1);
    assert!(replayed(&missing).counts.tainted_differences > 0);
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
