// Goal: the built web app has the right cache headers, deep links work, and API paths never return a page.
import { readdir, readFile } from "node:fs/promises";
import t from "tap";
import { testApp } from "../helpers/app.ts";

const ASSETS = new URL("../../web/dist/assets/", import.meta.url);
const page = { accept: "text/html,application/xhtml+xml,*/*;q=0.8" };

t.test("static serving", async (t) => {
  const { app } = await testApp(t);

  await t.test("the page is revalidated, hashed assets are cached for a year", async (t) => {
    const index = await app.inject({ url: "/", headers: page });
    t.equal(index.statusCode, 200);
    t.match(index.headers["content-type"], /text\/html/);
    t.equal(index.headers["cache-control"], "no-cache");
    t.match(index.headers["content-security-policy"], /script-src 'self'/);
    const [script] = (await readdir(ASSETS)).filter((name) => name.endsWith(".js"));
    const asset = await app.inject(`/assets/${script}`);
    t.equal(asset.statusCode, 200);
    t.equal(asset.headers["cache-control"], "public, max-age=31536000, immutable");
    t.notMatch(index.body, /<script(?![^>]*\bsrc=)/, "no inline script");
  });

  await t.test("deep links get the page, without a redirect", async (t) => {
    for (const url of [
      "/agents",
      "/agents/agt_123/activity",
      "/marketplace?search=x",
      "/agents/",
    ]) {
      const response = await app.inject({ url, headers: page });
      t.equal(response.statusCode, 200, url);
      t.match(response.headers["content-type"], /text\/html/, url);
    }
  });

  await t.test(
    "the app's own paths are pages, any other path is a page with status 404",
    async (t) => {
      const router = await readFile(
        new URL("../../web/src/app/router.tsx", import.meta.url),
        "utf8",
      );
      const paths = [...router.matchAll(/path: "(\/[^"]*)"/g)].map(([, path = ""]) => path);
      t.ok(paths.length > 10);
      for (const path of paths) {
        const url = path.replaceAll(/:\w+\??/g, "x");
        t.equal((await app.inject({ url, headers: page })).statusCode, 200, url);
      }
      for (const url of ["/nowhere", "/agentsx", "/no/such/place", "/picture.png"]) {
        const response = await app.inject({ url, headers: page });
        t.equal(response.statusCode, 404, url);
        t.match(response.headers["content-type"], /^text\/html/, url);
        t.equal(response.headers["cache-control"], "no-cache");
        t.match(response.body, '<div id="root">', "the app says that there is no such page");
      }
    },
  );

  await t.test("browsers that look for an icon at its usual path get one", async (t) => {
    const icon = await app.inject("/favicon.ico");
    t.equal(icon.statusCode, 200);
    t.match(icon.headers["content-type"], /^image\//);
    t.same([...icon.rawPayload.subarray(0, 4)], [0, 0, 1, 0], "an icon, not the app");
  });

  await t.test("a missing path is a problem document, also for a browser", async (t) => {
    for (const url of [
      "/api/nope",
      "/api",
      "/assets/gone.js",
      "/robots.json",
      "/mcp/nope",
      "/openapi.json/x",
    ]) {
      const response = await app.inject({ url, headers: page });
      t.equal(response.statusCode, 404, url);
      t.match(response.headers["content-type"], /problem\+json/, url);
    }
    const json = await app.inject({ url: "/agents", headers: { accept: "application/json" } });
    t.equal(json.statusCode, 404, "a client that accepts only JSON gets no page");
    for (const url of [
      "/../package.json",
      "/assets/../../package.json",
      "/%2e%2e/package.json",
      "/assets/%2e%2e%2f%2e%2e%2fpackage.json",
    ]) {
      const response = await app.inject({ url, headers: { accept: "application/json" } });
      t.notMatch(response.body, /"dependencies"/, `no file outside: ${url}`);
    }
  });

  await t.test("paths under .well-known exist or return 404, never a page", async (t) => {
    const existing = ["oauth-protected-resource", "oauth-authorization-server"];
    for (const document of [...existing, "openid-configuration", "security.txt", ""])
      for (const path of [document, `${document}/mcp`])
        for (const headers of [page, { accept: "application/json" }, { accept: "*/*" }, {}]) {
          const url = `/.well-known/${path}`;
          const response = await app.inject({ url, headers });
          if (existing.includes(document)) {
            t.equal(response.statusCode, 200, url);
            t.match(response.headers["content-type"], /^application\/json/, url);
            continue;
          }
          t.equal(response.statusCode, 404, url);
          t.match(response.headers["content-type"], /^application\/problem\+json/, url);
          t.match(response.json(), { status: 404, code: "not_found" }, url);
        }
  });

  await t.test("the consent is a page, the OAuth endpoints are not", async (t) => {
    const consent = await app.inject({ url: "/oauth/authorize?client_id=x", headers: page });
    t.equal(consent.statusCode, 200);
    t.match(consent.headers["content-type"], /^text\/html/);
    for (const url of ["/oauth/token", "/oauth/register", "/oauth/revoke"]) {
      const response = await app.inject({ url, headers: page });
      t.equal(response.statusCode, 405, url);
      t.match(response.headers["content-type"], /^application\/problem\+json/, url);
    }
  });
});
