//! What lived when most was in use.

use super::json;

#[test]
fn a_peak_has_what_lived_then_and_not_what_came_before_or_after() {
    let (run, code) = json(&[
        r#"{"op":"alloc","id":"early","size":"9MiB"}"#,
        r#"{"op":"free","id":"early"}"#,
        r#"{"op":"alloc","id":"a","size":"4MiB","name":"kv"}"#,
        r#"{"op":"alloc","id":"b","size":"2MiB","name":"layer","usage":"weight"}"#,
        r#"{"op":"alloc","id":"c","size":"3MiB","name":"layer","usage":"weight"}"#,
        r#"{"op":"alloc","id":"d","size":"1MiB","name":"kv"}"#,
        r#"{"op":"free","id":"c"}"#,
        r#"{"op":"free","id":"a"}"#,
        r#"{"op":"alloc","id":"late","size":"1MiB"}"#,
        r#"{"op":"free","id":"late"}"#,
        r#"{"op":"alloc","id":"far","size":4096,"core":4}"#,
    ]);
    assert_eq!(code, 0, "{run}");
    let peaks = run["peaks"].as_array().unwrap();
    assert_eq!(peaks.len(), 2);
    assert_eq!(
        peaks[0],
        serde_json::json!({
            "device": 0,
            "hbm": 0,
            "bytes": 10 << 20,
            "line": 7,
            "categories": {"tensors": 5 << 20, "model constants": 5 << 20},
            "largest": [
                {"name": "kv", "count": 2, "bytes": 5 << 20},
                {"name": "layer", "count": 2, "bytes": 5 << 20},
            ],
            "others": {"name": null, "count": 0, "bytes": 0},
        })
    );
    assert_eq!(
        (&peaks[1]["hbm"], &peaks[1]["bytes"]),
        (&2.into(), &4096.into())
    );
}

#[test]
fn the_ten_largest_names_are_told_one_by_one_and_the_others_in_sum() {
    let lines: Vec<String> = (1..=13)
        .map(|n| format!(r#"{{"op":"alloc","id":"t{n}","size":{}}}"#, n * 4096))
        .collect();
    let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
    let (run, _) = json(&lines);
    let peak = &run["peaks"][0];
    let largest = peak["largest"].as_array().unwrap();
    assert_eq!((largest.len(), &largest[0]["name"]), (10, &"t13".into()));
    assert_eq!(peak["others"]["count"], 3);
    assert_eq!(peak["others"]["bytes"], (1 + 2 + 3) * 4096);
}

#[test]
fn the_summary_says_when_and_of_what_the_fullest_hbm_was_fullest() {
    let workload = "{\"workload\":1}\n\
        {\"op\":\"alloc\",\"id\":\"a\",\"size\":\"1GiB\",\"core\":2,\"name\":\"k\\u001bv\"}\n\
        {\"op\":\"alloc\",\"id\":\"b\",\"size\":\"2MiB\",\"core\":3,\"usage\":\"weight\"}\n\
        {\"op\":\"free\",\"id\":\"a\"}\n";
    let run = super::run(&["-"], workload);
    let wanted = "  peak 1.002 GiB on nd 0 hbm 1 at line 3: tensors 1 GiB, model constants 2 MiB\n    \
                  lived then: \"k\\u{1b}v\" 1 GiB, \"b\" 2 MiB\n";
    assert!(run.stdout.contains(wanted), "{}", run.stdout);
}
