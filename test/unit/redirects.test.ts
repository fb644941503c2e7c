// Goal: an OAuth client can redirect the owner only to a safe, registered address.
import t from "tap";
import {
  isRegistered,
  labelOf,
  placeOfRedirect,
  redirectTo,
  whyNotRedirect,
} from "../../server/plugins/oauth/redirects.ts";

t.test("redirect URIs of common clients are accepted", async (t) => {
  for (const uri of [
    "https://claude.ai/api/mcp/auth_callback",
    "https://claude.com/api/mcp/auth_callback",
    "https://chatgpt.com/connector_platform_oauth_redirect",
    "https://vscode.dev/redirect",
    "http://127.0.0.1:33418/",
    "http://localhost:3118/callback",
    "http://[::1]:8080/callback",
    "http://localhost/oauth/callback?client=1",
    "cursor://anysphere.cursor-mcp/oauth/callback",
    "vscode://vscode.github-authentication/did-authenticate",
    "com.example.app:/oauth",
    "com.example.app://oauth",
  ])
    t.equal(whyNotRedirect(uri), undefined, uri);
});

t.test("URIs that run code, parse in two ways or go unencrypted are refused", async (t) => {
  for (const uri of [
    "",
    "/callback",
    "//evil.example/",
    "javascript:alert(1)",
    "JavaScript:alert(1)",
    "javascript://localhost/%0aalert(1)",
    "data:text/html,hi",
    "vbscript:x",
    "file:///etc/passwd",
    "blob:https://a.example/1",
    "mailto:a@b.example",
    "about:blank",
    "ftp://a.example/",
    "ws://localhost/",
    "http://evil.example/callback",
    "http://localhost.evil.example/callback",
    "http://127.0.0.1.evil.example/",
    "http://127.0.0.2/",
    "http://10.0.0.1/",
    "https://user@evil.example/",
    "https://claude.ai@evil.example/",
    "https://a.example/#fragment",
    "https://a.example/x#",
    "https://a.example\\@evil.example/",
    "https://a.example/\tx",
    " https://a.example/",
    "https://a.example/a b",
    "https://a.example/../x",
    "https://a.example/%2e%2e/x",
    "https://a.example/./x",
    "https://ä.example/",
    "https:a.example",
    `https://a.example/${"x".repeat(500)}`,
  ])
    t.ok(whyNotRedirect(uri), uri);
});

t.test("only the registered URI matches, with any port on this computer", async (t) => {
  const registered = ["https://a.example/cb?x=1", "http://localhost:1234/cb", "cursor://mcp/cb"];
  for (const uri of [
    "https://a.example/cb?x=1",
    "http://localhost:1234/cb",
    "http://localhost:65000/cb",
    "http://localhost/cb",
    "cursor://mcp/cb",
  ])
    t.ok(isRegistered(uri, registered), uri);
  for (const uri of [
    "https://a.example/cb",
    "https://a.example/cb?x=1&y=2",
    "https://a.example/cb/?x=1",
    "https://A.example/cb?x=1",
    "https://a.example:8443/cb?x=1",
    "https://a.example.evil/cb?x=1",
    "http://a.example/cb?x=1",
    "http://127.0.0.1:1234/cb",
    "http://localhost:1234/cb/",
    "http://localhost:1234/cb?x",
    "http://localhost:1234/other",
    "http://localhost:1234@evil.example/cb",
    "https://localhost:1234/cb",
    "cursor://mcp/cb2",
    "vscode://mcp/cb",
  ])
    t.notOk(isRegistered(uri, registered), uri);
});

t.test("the redirect keeps the query of its URI", async (t) => {
  const answer = { code: "c d", state: null, iss: "https://i.example" };
  const added = "code=c+d&iss=https%3A%2F%2Fi.example";
  t.equal(redirectTo("https://a.example/cb", answer), `https://a.example/cb?${added}`);
  t.equal(redirectTo("https://a.example/cb?x=1", answer), `https://a.example/cb?x=1&${added}`);
  t.equal(redirectTo("cursor://mcp/cb", answer), `cursor://mcp/cb?${added}`);
});

t.test("the label shown in the wallet begins with the redirect's host", async (t) => {
  t.equal(
    labelOf('Claude at claude.ai, named "x', "https://evil.example/cb"),
    'Connection to evil.example, named "Claude at claude.ai, named x"',
  );
  t.equal(placeOfRedirect("http://localhost:1/cb"), "this computer");
  t.equal(placeOfRedirect("cursor://mcp/cb"), "cursor:// app");
  const long = `https://${"claude.ai.".repeat(10)}evil.example/cb`;
  t.match(labelOf("x".repeat(60), long), /^Connection to ….*evil\.example, named "x+"$/);
  for (const label of [
    labelOf("x".repeat(60), long),
    labelOf("😀".repeat(60), "https://a.example/"),
  ])
    t.ok(Array.from(label).length <= 80, label);
});
