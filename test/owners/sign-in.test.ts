// Goal: Sign-In with Ethereum (EIP-4361) works only for the holder of the wallet: once per nonce, for this server,
// chain and time.
import t, { type Test } from "tap";
import { generatePrivateKey, privateKeyToAccount } from "viem/accounts";
import { testApp, type TestApp } from "../helpers/app.ts";
import { freshNonce, siweMessage, verify, type SiweParts } from "../helpers/owner.ts";

const account = privateKeyToAccount(generatePrivateKey());
const minutes = (count: number): Date => new Date(Date.now() + count * 60_000);

t.test("sign-in", async (t) => {
  const service = await testApp(t);
  const attempt = async (parts: SiweParts, edit = (message: string) => message) => {
    const nonce = await freshNonce(service.app);
    const message = edit(siweMessage(service, { nonce, address: account.address, ...parts }));
    return verify(service, { message, signature: await account.signMessage({ message }) });
  };
  const refused = async (
    t: Test,
    name: string,
    why: RegExp,
    answer: Awaited<ReturnType<typeof verify>>,
  ) => {
    t.equal(answer.statusCode, 401, name);
    const problem = answer.json<{ code: string; detail: string }>();
    t.equal(problem.code, "invalid_signature", name);
    t.match(problem.detail, why, name);
    t.equal(answer.headers["set-cookie"], undefined, `${name}: no cookie`);
    t.ok(answer.headers["www-authenticate"], `${name}: has a challenge`);
  };

  await t.test("a valid message signs in", async (t) => {
    const answer = await attempt({ statement: "Sign in to Purser to manage your agents." });
    t.equal(answer.statusCode, 200, answer.body);
    t.same(answer.json(), { address: account.address });
    const [cookie = ""] = [answer.headers["set-cookie"]].flat();
    t.match(
      cookie,
      /^purser_session=[A-Za-z0-9_-]{43}; Max-Age=604800; Path=\/; HttpOnly; SameSite=Strict$/,
    );
    const session = await service.app.inject({
      url: "/api/auth/session",
      headers: { cookie: cookie.split(";", 1)[0] ?? "" },
    });
    t.equal(session.json<{ address: string }>().address, account.address);
  });

  await t.test("other message formats that the standard allows", async (t) => {
    const bare = await attempt({ expirationTime: undefined });
    t.equal(bare.statusCode, 200, "no statement, no expiration");
    const oneBlankLine = await attempt({}, (message) => message.replace("\n\n\nURI", "\n\nURI"));
    t.equal(oneBlankLine.statusCode, 200, "one empty line instead of two");
    const full = await attempt({
      scheme: "http",
      notBefore: minutes(-1),
      requestId: "r-1",
      resources: ["https://example.com/terms"],
      statement: "Hello",
    });
    t.equal(full.statusCode, 200, full.body);
    const other = new URL(service.config.publicUrl);
    const spelled = await attempt({
      domain: `127.0.0.1:${other.port}`,
      uri: `http://127.0.0.1:${other.port}`,
    });
    t.equal(spelled.statusCode, 200, "the other name of the loopback address");
  });

  await t.test("a message for another domain, URI, chain, scheme or version", async (t) => {
    const port = new URL(service.config.publicUrl).port;
    await refused(t, "domain", /domain/, await attempt({ domain: "evil.example" }));
    await refused(t, "domain without port", /domain/, await attempt({ domain: "localhost" }));
    await refused(
      t,
      "look-alike",
      /domain/,
      await attempt({}, (message) =>
        message.replace(`localhost:${port} wants`, `localhost:${port}.evil.example wants`),
      ),
    );
    await refused(t, "uri", /URI/, await attempt({ uri: "http://evil.example" }));
    await refused(t, "uri of another port", /URI/, await attempt({ uri: "http://localhost:1" }));
    await refused(
      t,
      "uri of another scheme",
      /URI/,
      await attempt({ uri: `https://localhost:${port}` }),
    );
    await refused(t, "chain", /chain ID/, await attempt({ chainId: 1 }));
    await refused(t, "scheme", /scheme/, await attempt({ scheme: "https" }));
    await refused(
      t,
      "version",
      /version/,
      await attempt({}, (message) => message.replace("Version: 1", "Version: 2")),
    );
  });

  await t.test("a message for another time", async (t) => {
    await refused(t, "expired", /expired/, await attempt({ expirationTime: minutes(-1) }));
    await refused(t, "not yet", /not valid yet/, await attempt({ notBefore: minutes(5) }));
    await refused(
      t,
      "issued later",
      /future/,
      await attempt({ issuedAt: minutes(30), expirationTime: minutes(60) }),
    );
    await refused(
      t,
      "no time at all",
      /EIP-4361/,
      await attempt({}, (message) =>
        message.replace(/Issued At: .*/, "Issued At: 2026-13-45T99:00:00Z"),
      ),
    );
  });

  await t.test("a nonce that is unknown, used or expired", async (t) => {
    await refused(t, "invented", /nonce/, await attempt({ nonce: "a".repeat(32) }));

    const nonce = await freshNonce(service.app);
    t.match(nonce, /^[A-Za-z0-9]{17,}$/, "17 of 62 characters hold more than 96 bits");
    const message = siweMessage(service, { nonce, address: account.address });
    const signature = await account.signMessage({ message });
    t.equal((await verify(service, { message, signature })).statusCode, 200);
    await refused(t, "replay", /nonce/, await verify(service, { message, signature }));

    const old = await freshNonce(service.app);
    await service.database.pool.query(
      "UPDATE auth_nonces SET expires_at = now() - interval '1 second' WHERE nonce = $1",
      [old],
    );
    const late = siweMessage(service, { nonce: old, address: account.address });
    const lateSignature = await account.signMessage({ message: late });
    await refused(
      t,
      "old",
      /10 minutes/,
      await verify(service, { message: late, signature: lateSignature }),
    );
  });

  await t.test("a failed attempt uses up the nonce", async (t) => {
    const nonce = await freshNonce(service.app);
    const message = siweMessage(service, { nonce, address: account.address });
    const otherAccount = privateKeyToAccount(generatePrivateKey());
    await refused(
      t,
      "forged",
      /did not sign/,
      await verify(service, { message, signature: await otherAccount.signMessage({ message }) }),
    );
    const late = await verify(service, {
      message,
      signature: await account.signMessage({ message }),
    });
    await refused(t, "too late", /nonce/, late);
  });

  await t.test("of parallel attempts with one nonce exactly one succeeds", async (t) => {
    const nonce = await freshNonce(service.app);
    const message = siweMessage(service, { nonce, address: account.address });
    const signature = await account.signMessage({ message });
    const answers = await Promise.all(
      Array.from({ length: 8 }, () => verify(service, { message, signature })),
    );
    t.same(
      answers.map(({ statusCode }) => statusCode).sort((left, right) => left - right),
      [200, 401, 401, 401, 401, 401, 401, 401],
    );
  });

  await t.test("forged, altered and malformed messages", async (t) => {
    const nonce = await freshNonce(service.app);
    const message = siweMessage(service, { nonce, address: account.address });
    const signature = await account.signMessage({ message });
    const altered = message.replace(
      account.address,
      privateKeyToAccount(generatePrivateKey()).address,
    );
    await refused(
      t,
      "another address",
      /did not sign/,
      await verify(service, { message: altered, signature }),
    );
    for (const bad of [
      "0x",
      "0x1234",
      "signature",
      `${signature}00`,
      `0x${"00".repeat(65)}`,
      "0xzz",
    ]) {
      const fresh = siweMessage(service, {
        nonce: await freshNonce(service.app),
        address: account.address,
      });
      await refused(
        t,
        `signature ${bad.slice(0, 10)}`,
        /did not sign/,
        await verify(service, { message: fresh, signature: bad }),
      );
    }
    for (const [name, text] of [
      ["prose", "please let me in"],
      ["text before", `hello\n${message}`],
      ["text after", `${message}\nhello`],
      [
        "fields in the statement",
        message.replace("\n\n\nURI", "\n\nURI: http://a\nVersion: 1\n\nURI"),
      ],
    ] as const)
      await refused(t, name, /EIP-4361/, await verify(service, { message: text, signature }));
  });

  await t.test("bodies are validated strictly", async (t) => {
    for (const body of [
      {},
      { message: "x" },
      { message: 1, signature: "0x" },
      { message: "x", signature: "0x00", extra: 1 },
    ]) {
      const answer = await verify(service, body as never);
      t.equal(answer.statusCode, 422, JSON.stringify(body));
      t.equal(answer.json<{ code: string }>().code, "validation_failed");
    }
  });
});

t.test("behind https the cookie is Secure and bound to the host", async (t) => {
  const service: TestApp = await testApp(t, { env: { PUBLIC_URL: "https://purser.example.com" } });
  const nonce = await freshNonce(service.app);
  const message = siweMessage(service, { nonce, address: account.address });
  const answer = await verify(service, {
    message,
    signature: await account.signMessage({ message }),
  });
  const [cookie = ""] = [answer.headers["set-cookie"]].flat();
  t.match(
    cookie,
    /^__Host-purser_session=[^;]+; Max-Age=604800; Path=\/; HttpOnly; Secure; SameSite=Strict$/,
  );
  const withOldName = await service.app.inject({
    url: "/api/auth/session",
    headers: { cookie: cookie.split(";", 1)[0]?.replace("__Host-", "") ?? "" },
  });
  t.equal(withOldName.statusCode, 401, "the cookie name without __Host- is ignored");
  const local = siweMessage(service, {
    nonce: await freshNonce(service.app),
    address: account.address,
    domain: "localhost",
  });
  const refusal = await verify(service, {
    message: local,
    signature: await account.signMessage({ message: local }),
  });
  t.equal(refusal.statusCode, 401, "localhost is not this server's domain");
});
