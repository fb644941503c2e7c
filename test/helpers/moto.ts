/** A local KMS (`moto_server`, from PyPI) behind a proxy that can hang, throttle or return garbage. */
import { spawn } from "node:child_process";
import { once } from "node:events";
import { createServer, request, type IncomingMessage, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { CreateKeyCommand, KMSClient } from "@aws-sdk/client-kms";
import type { Test } from "tap";
import { freePort } from "../../server/local/free-port.ts";
import { until } from "./until.ts";

export interface TestKms {
  /** The proxy's behaviour: forward, never answer, answer as a throttled KMS, or answer with garbage. */
  mode: "open" | "hangs" | "throttles" | "garbage";
  /** Names of the received operations, in order. */
  operations: string[];
  /** The environment for a process that uses it. */
  env: Record<string, string>;
  makeKey(kind: "SYMMETRIC_DEFAULT" | "ECC_SECG_P256K1" | "ECC_NIST_P256"): Promise<string>;
}

/**
 * moto hashes its input before signing even if the input is a digest (as its docs state). This replaces the one method,
 * so that it signs digests as AWS does.
 */
const MOTO = `
import sys
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, utils
from moto.kms.utils import ECDSAPrivateKey
from moto.server import main
as_given = ec.ECDSA(utils.Prehashed(hashes.SHA256()))
ECDSAPrivateKey.sign = lambda self, message, algorithm: self.private_key.sign(message, as_given)
main(["-H", "127.0.0.1", "-p", sys.argv[1]])
`;

/** Undefined if moto is not installed: the caller skips its test with that reason. */
export async function startKms(t: Pick<Test, "teardown">): Promise<TestKms | undefined> {
  const found = spawn("python3", ["-c", "import moto.server"], { stdio: "ignore" });
  const [code] = (await Promise.race([once(found, "exit"), once(found, "error")])) as [unknown];
  if (code !== 0) return undefined;
  const port = await freePort();
  const child = spawn("python3", ["-c", MOTO, String(port)], { stdio: "ignore" });
  t.teardown(async () => {
    child.kill("SIGKILL");
    if (child.exitCode === null && child.signalCode === null) await once(child, "exit");
  });
  const upstream = `http://127.0.0.1:${port}`;
  await until(
    () =>
      fetch(upstream).then(
        () => true,
        () => false,
      ),
    60_000,
  );

  const kms: TestKms = { mode: "open", operations: [], env: {}, makeKey };
  const held = new Set<ServerResponse>();
  const server = createServer((incoming, reply) => {
    const [, operation = ""] = String(incoming.headers["x-amz-target"]).split(".");
    kms.operations.push(operation);
    if (kms.mode === "open") return pass(incoming, reply, upstream);
    if (kms.mode === "hangs") return void held.add(reply);
    reply.writeHead(kms.mode === "throttles" ? 400 : 200, {
      "content-type": "application/x-amz-json-1.1",
    });
    reply.end(
      kms.mode === "throttles"
        ? JSON.stringify({ __type: "ThrottlingException", message: "Rate exceeded" })
        : JSON.stringify({ Plaintext: "AAAA", CiphertextBlob: "AAAA", Signature: "AAAA" }),
    );
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  t.teardown(() => {
    server.closeAllConnections();
    server.close();
  });
  const endpoint = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
  kms.env = {
    AWS_REGION: "eu-central-1",
    AWS_ENDPOINT_URL_KMS: endpoint,
    AWS_ACCESS_KEY_ID: "test",
    AWS_SECRET_ACCESS_KEY: "test",
  };
  // The AWS library reads its own environment variables.
  Object.assign(process.env, kms.env);
  return kms;

  async function makeKey(kind: string): Promise<string> {
    const client = new KMSClient({});
    const { KeyMetadata } = await client.send(
      new CreateKeyCommand({
        KeySpec: kind as "SYMMETRIC_DEFAULT",
        KeyUsage: kind === "SYMMETRIC_DEFAULT" ? "ENCRYPT_DECRYPT" : "SIGN_VERIFY",
      }),
    );
    client.destroy();
    return KeyMetadata?.Arn ?? "";
  }
}

function pass(incoming: IncomingMessage, reply: ServerResponse, upstream: string): void {
  const onward = request(
    upstream,
    { method: incoming.method, headers: incoming.headers, path: incoming.url },
    (answer) => {
      reply.writeHead(answer.statusCode ?? 502, answer.headers);
      answer.pipe(reply);
    },
  );
  onward.on("error", () => reply.destroy());
  incoming.pipe(onward);
}
