/**
 * A client of AWS KMS with the few operations we need. The AWS library is loaded only where a key is kept there;
 * region, endpoint and credentials come from AWS's own environment variables.
 */
import type * as Aws from "@aws-sdk/client-kms";
import fp from "fastify-plugin";
import { Histogram } from "prom-client";
import { ApiError } from "../errors.ts";

/** The encryption context of a wrapped key: KMS decrypts only with the same context, and writes it into its log. */
export type KmsContext = Record<string, string>;

/** The ciphertext does not belong to this key, or was made for another context. */
export class KmsAltered extends Error {
  override name = "KmsAltered";
}

type KmsOutcome = "ok" | "altered" | "unavailable";
type OnKmsCall = (
  call: { operation: string; outcome: KmsOutcome; ms: number },
  error?: unknown,
) => void;

/** Time limits of one attempt and of all attempts: the caller holds a reservation or an agent's row meanwhile. */
const ATTEMPT_MS = 1_000;
const DEADLINE_MS = 3_000;
const ATTEMPTS = 3;
const CONNECTIONS = 64;
/** Further callers are refused at once, so that a KMS that hangs does not hold up the whole process. */
const MAX_WAITING = 512;
const ALTERED = new Set(["InvalidCiphertextException", "IncorrectKeyException"]);

export class Kms {
  readonly #onCall: OnKmsCall;
  #waiting = 0;
  #loading: Promise<Loaded> | undefined;

  constructor(onCall: OnKmsCall = () => undefined) {
    this.#onCall = onCall;
  }

  async close(): Promise<void> {
    const loaded = await this.#loading?.catch(() => undefined);
    loaded?.client.destroy();
  }

  async encrypt(KeyId: string, Plaintext: Uint8Array, context: KmsContext): Promise<Uint8Array> {
    const { CiphertextBlob } = await this.#call("Encrypt", ({ client, aws }, options) =>
      client.send(
        new aws.EncryptCommand({ KeyId, Plaintext, EncryptionContext: context }),
        options,
      ),
    );
    return there(CiphertextBlob);
  }

  async decrypt(
    KeyId: string,
    CiphertextBlob: Uint8Array,
    context: KmsContext,
  ): Promise<Uint8Array> {
    const { Plaintext } = await this.#call("Decrypt", ({ client, aws }, options) =>
      client.send(
        new aws.DecryptCommand({ KeyId, CiphertextBlob, EncryptionContext: context }),
        options,
      ),
    );
    return there(Plaintext);
  }

  /** Re-encrypts from one key or context to another; the plaintext never leaves KMS. */
  async reEncrypt(
    CiphertextBlob: Uint8Array,
    from: { keyId: string; context: KmsContext },
    to: { keyId: string; context: KmsContext },
  ): Promise<Uint8Array> {
    const answer = await this.#call("ReEncrypt", ({ client, aws }, options) =>
      client.send(
        new aws.ReEncryptCommand({
          CiphertextBlob,
          SourceKeyId: from.keyId,
          SourceEncryptionContext: from.context,
          DestinationKeyId: to.keyId,
          DestinationEncryptionContext: to.context,
        }),
        options,
      ),
    );
    return there(answer.CiphertextBlob);
  }

  /** A DER-encoded SubjectPublicKeyInfo. */
  async publicKey(KeyId: string): Promise<Uint8Array> {
    const { PublicKey } = await this.#call("GetPublicKey", ({ client, aws }, options) =>
      client.send(new aws.GetPublicKeyCommand({ KeyId }), options),
    );
    return there(PublicKey);
  }

  /** A DER-encoded signature (r, s); s may be high. */
  async sign(KeyId: string, digest: Uint8Array): Promise<Uint8Array> {
    const { Signature } = await this.#call("Sign", ({ client, aws }, options) =>
      client.send(
        new aws.SignCommand({
          KeyId,
          Message: digest,
          MessageType: "DIGEST",
          SigningAlgorithm: "ECDSA_SHA_256",
        }),
        options,
      ),
    );
    return there(Signature);
  }

  async #call<T>(
    operation: string,
    send: (loaded: Loaded, options: { abortSignal: AbortSignal }) => Promise<T>,
  ): Promise<T> {
    const startMs = performance.now();
    const report = (outcome: KmsOutcome, error?: unknown) =>
      this.#onCall({ operation, outcome, ms: performance.now() - startMs }, error);
    if (this.#waiting >= MAX_WAITING) {
      const error = new Error(`${MAX_WAITING} calls are waiting for it`);
      report("unavailable", error);
      throw keysUnavailable(error);
    }
    this.#waiting += 1;
    const { signal: abortSignal, late, end } = deadline();
    try {
      // Finding credentials uses the network too, and does not support the abort signal.
      const sent = (this.#loading ??= load()).then((loaded) => send(loaded, { abortSignal }));
      const answer = await Promise.race([sent, late]);
      report("ok");
      return answer;
    } catch (error) {
      const isAltered = error instanceof Error && ALTERED.has(error.name);
      report(isAltered ? "altered" : "unavailable", error);
      throw isAltered
        ? new KmsAltered("the KMS cannot decrypt this data key", { cause: error })
        : keysUnavailable(error);
    } finally {
      end();
      this.#waiting -= 1;
    }
  }
}

interface Loaded {
  client: Aws.KMSClient;
  aws: typeof Aws;
}

async function load(): Promise<Loaded> {
  const loaded: object = await import("@aws-sdk/client-kms");
  // In a compiled module, as in the operator's tools, all exports are under the default.
  const aws =
    "KMSClient" in loaded ? (loaded as typeof Aws) : (loaded as { default: typeof Aws }).default;
  const agent = { maxSockets: CONNECTIONS, keepAlive: true };
  const client = new aws.KMSClient({
    maxAttempts: ATTEMPTS,
    requestHandler: {
      connectionTimeout: ATTEMPT_MS,
      requestTimeout: ATTEMPT_MS,
      throwOnRequestTimeout: true,
      httpsAgent: agent,
      httpAgent: agent,
    },
  });
  return { client, aws };
}

/** For any failure to use a key: nothing was signed, and the same request may succeed later. */
export const keysUnavailable = (cause: unknown): ApiError =>
  new ApiError("keys_unavailable", { headers: { "retry-after": "1" }, cause });

export const isKeysUnavailable = (error: unknown): boolean =>
  error instanceof ApiError && error.code === "keys_unavailable";

function deadline(): { signal: AbortSignal; late: Promise<never>; end: () => void } {
  const abort = new AbortController();
  let timer: NodeJS.Timeout | undefined;
  const late = new Promise<never>((_resolve, reject) => {
    timer = setTimeout(() => {
      const error = new Error(`no answer within ${DEADLINE_MS} ms`);
      reject(error);
      abort.abort(error);
    }, DEADLINE_MS);
  });
  return { signal: abort.signal, late, end: () => clearTimeout(timer) };
}

function there(bytes: Uint8Array | undefined): Uint8Array {
  if (bytes === undefined) throw keysUnavailable(new Error("the response of the KMS has no data"));
  return bytes;
}

declare module "fastify" {
  interface FastifyInstance {
    /** Loads nothing and sends nothing until a key is kept there. */
    kms: Kms;
  }
}

const REPORT_AGAIN_MS = 10_000;

export default fp(
  async (app) => {
    const seconds = new Histogram({
      name: "purser_kms_seconds",
      help: "Calls to the KMS including retries, by operation and outcome",
      labelNames: ["operation", "outcome"],
      buckets: [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 3],
      registers: [app.metrics],
    });
    let reportedAtMs = Number.NEGATIVE_INFINITY;
    const kms = new Kms(({ operation, outcome, ms }, error) => {
      seconds.observe({ operation, outcome }, ms / 1_000);
      // An outage is logged once in a while, however many payments it stops; custody reports an altered wrapped key.
      if (outcome !== "unavailable" || performance.now() - reportedAtMs < REPORT_AGAIN_MS) return;
      reportedAtMs = performance.now();
      const { name, message } = error instanceof Error ? error : new Error(String(error));
      app.log.error({ operation, reason: name, message }, "the KMS does not accept our keys");
    });
    app.decorate("kms", kms);
    app.addHook("onClose", () => kms.close());
  },
  { name: "kms" },
);
