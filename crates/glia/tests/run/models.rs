//! Models, and what they own.

use super::json;

#[test]
fn a_model_owns_memory_and_takes_it_along() {
    let load = r#"{"op":"load","id":"m","core":3,"neff":1004,"name":"dense"}"#;
    let alloc = r#"{"op":"alloc","id":"w","size":4097,"model":"m","usage":"weight"}"#;
    let (run, code) = json(&[
        load,
        alloc,
        r#"{"op":"write","id":"w","seed":3}"#,
        r#"{"op":"read","id":"w"}"#,
    ]);
    assert_eq!(code, 0, "{run}");
    let core = &run["devices"][0]["hbms"][1]["cores"][1];
    assert_eq!(
        (&core["core"], &core["total_bytes"]),
        (&3.into(), &4097.into())
    );
    assert_eq!(run["bytes"]["verified"], 4097);
    assert_eq!(run["operations"]["load"], 1);

    let (run, code) = json(&[load, alloc, r#"{"op":"unload","id":"m"}"#]);
    assert_eq!(code, 0, "{run}");
    assert_eq!(run["devices"][0]["hbms"][1]["present_bytes"], 0);
    assert_eq!(run["operations"]["live"], 0);
}

#[test]
fn a_scratchpad_was_asked_for_by_the_line_that_reserved_it() {
    let (run, code) = json(&[
        r#"{"op":"load","id":"m"}"#,
        r#"{"op":"reserve","id":"m","variables":[{"offset":0,"size":"1MiB"},{"offset":"500MiB","size":"13MiB"}]}"#,
        r#"{"op":"alloc","id":"x","size":"22GiB"}"#,
    ]);
    assert_eq!(code, 1, "{run}");
    let blocks = &run["failure"]["explanation"]["bank"]["to_free"]["blocks"];
    let sites = blocks.as_array().unwrap().iter();
    let sites: Vec<_> = sites.map(|block| &block["site"]).collect();
    assert!(!sites.is_empty(), "{run}");
    assert!(sites.iter().all(|site| *site == "line 3"), "{sites:?}");
}

#[test]
fn a_model_that_cannot_be_meant_is_refused() {
    let load = r#"{"op":"load","id":"m"}"#;
    let cases: [(&[&str], &str); 6] = [
        (
            &[r#"{"op":"alloc","id":"w","size":1,"model":"m"}"#],
            "line 2: no model \"m\" is loaded here",
        ),
        (
            &[load, load],
            "line 3: a model \"m\" is loaded since line 2",
        ),
        (
            &[load, r#"{"op":"load","id":"n","neff":1001}"#],
            "line 3: neff 1001: 1002 to 101001 are allowed",
        ),
        (
            &[
                load,
                r#"{"op":"alloc","id":"w","size":1,"model":"m","core":1}"#,
            ],
            "line 3: \"core\" means nothing on alloc for a \"model\"",
        ),
        (
            &[
                load,
                r#"{"op":"alloc","id":"w","size":1,"model":"m","usage":"weight"}"#,
                r#"{"op":"unload","id":"m"}"#,
                r#"{"op":"read","id":"w"}"#,
            ],
            "line 5: no object \"w\" lives here: it was never allocated, its allocation failed, it has been freed, or it went with its model",
        ),
        (
            &[
                r#"{"op":"load","id":"a","neff":101001}"#,
                r#"{"op":"load","id":"b","neff":101002}"#,
            ],
            "line 3: neff 101002: ids only go up, and all up to 101001, the last one, are used up",
        ),
    ];
    for (lines, wanted) in cases {
        let (run, code) = json(lines);
        assert_eq!(code, 2);
        let error = run["error"].as_str().unwrap();
        assert!(error.contains(wanted), "{error}");
    }
}
