use super::*;
use crate::token_file::TokenFile;
use crate::{Anonymous, Authn, Options};
use apiserver_request::{Authenticator, Credentials, User};

const TOKENS: &str = "t1,jane,7,\"dev,ops\"\n\nt2,joe,8\n";

fn bearer(token: &str) -> Credentials {
    Credentials {
        bearer: Some(token.into()),
        ..Credentials::default()
    }
}

fn authn(anonymous: Anonymous) -> Arc<Authn> {
    let directory = tempfile::tempdir().unwrap();
    let path = write_file(directory.path(), "tokens.csv", TOKENS);
    let options = Options {
        token_auth_file: Some(path),
        anonymous,
        ..Options::default()
    };
    Authn::new(options, fake_objects(Vec::new())).unwrap()
}

#[test]
fn static_token_gives_user_uid_and_groups() {
    let user = complete(authn(Anonymous::Disabled).identify("/api", &bearer("t1"))).unwrap();
    assert_eq!((user.name.as_str(), user.uid.as_str()), ("jane", "7"));
    assert_eq!(user.groups, ["dev", "ops", "system:authenticated"]);
}

#[test]
fn invalid_token_is_rejected_even_where_anonymous_requests_are_allowed() {
    let result = complete(authn(Anonymous::AllPaths).identify("/api", &bearer("wrong")));
    assert_eq!(result.unwrap_err().0, "invalid bearer token");
}

#[test]
fn request_without_credentials_is_anonymous_on_allowed_paths() {
    let livez = Anonymous::Paths(vec!["/livez".into()]);
    for (anonymous, path, expect) in [
        (Anonymous::AllPaths, "/api", true),
        (livez.clone(), "/livez", true),
        (livez, "/api", false),
        (Anonymous::Disabled, "/livez", false),
    ] {
        let result = complete(authn(anonymous.clone()).identify(path, &Credentials::default()));
        assert_eq!(
            result.ok(),
            expect.then(User::anonymous),
            "{anonymous:?} {path}"
        );
    }
}

#[test]
fn token_file_with_an_incomplete_line_is_rejected_without_its_content() {
    let directory = tempfile::tempdir().unwrap();
    for (content, why) in [
        (
            "good,u,1\nsecret,u\n",
            "line 2 needs a token, a user and a UID",
        ),
        (",u,1", "line 1 has an empty token"),
    ] {
        let path = write_file(directory.path(), "tokens.csv", content);
        let error = TokenFile::from_file(&path).err().unwrap().to_string();
        assert!(error.contains(why) && !error.contains("secret"), "{error}");
    }
}

#[test]
fn token_review_returns_user_and_rejects_foreign_audiences() {
    let authn = authn(Anonymous::Disabled);
    let review = complete(authn.review("t2", &[], &Arc::default()));
    assert_eq!(
        review,
        json!({"authenticated": true, "user": {"username": "joe", "uid": "8", "groups": ["system:authenticated"]}, "audiences": []})
    );
    assert!(
        complete(authn.review("t2", &["vault".into()], &Arc::default()))
            .get("authenticated")
            .is_none()
    );
    assert!(
        complete(authn.review("wrong", &[], &Arc::default()))
            .get("authenticated")
            .is_none()
    );
}

#[test]
fn request_without_a_token_is_left_to_other_authenticators() {
    assert_eq!(
        complete(authn(Anonymous::Disabled).authenticate(&Credentials::default())).unwrap(),
        None
    );
}
