// A browser and its push service: it subscribes, and reads what it gets as RFC 8291 and 8292 say, without the library that
// the service sends with.
import {
  createDecipheriv,
  createECDH,
  createHash,
  createPublicKey,
  hkdfSync,
  randomBytes,
  verify,
} from "node:crypto";
import type { Received } from "./world.ts";

export interface Browser {
  endpoint: string;
  keys: { p256dh: string; auth: string };
  /** As the API names it. */
  endpointHash: string;
  /** The plain text of a message. */
  open(message: Pick<Received, "raw">): Record<string, unknown>;
}

export function newBrowser(endpoint: string): Browser {
  const pair = createECDH("prime256v1");
  pair.generateKeys();
  const auth = randomBytes(16);
  return {
    endpoint,
    keys: { p256dh: pair.getPublicKey("base64url"), auth: auth.toString("base64url") },
    endpointHash: createHash("sha256").update(endpoint).digest("hex"),
    open: ({ raw }) => {
      const salt = raw.subarray(0, 16);
      const keyLength = raw.readUInt8(20);
      const senderKey = raw.subarray(21, 21 + keyLength);
      const sealed = raw.subarray(21 + keyLength);
      const info = Buffer.concat([Buffer.from("WebPush: info\0"), pair.getPublicKey(), senderKey]);
      const secret = hkdf(pair.computeSecret(senderKey), auth, info, 32);
      const key = hkdf(secret, salt, Buffer.from("Content-Encoding: aes128gcm\0"), 16);
      const nonce = hkdf(secret, salt, Buffer.from("Content-Encoding: nonce\0"), 12);
      const decipher = createDecipheriv("aes-128-gcm", key, nonce);
      decipher.setAuthTag(sealed.subarray(-16));
      const plain = Buffer.concat([decipher.update(sealed.subarray(0, -16)), decipher.final()]);
      // One record: the text, the delimiter 2, and padding of zeros.
      return JSON.parse(plain.subarray(0, plain.lastIndexOf(2)).toString()) as never;
    },
  };
}

const hkdf = (secret: Buffer, salt: Buffer, info: Buffer, length: number): Buffer =>
  Buffer.from(hkdfSync("sha256", secret, salt, info, length));

/** The claims of a message's VAPID token, if this key signed it. */
export function readVapid({ headers }: Pick<Received, "headers">, publicKey: string) {
  const [, token = "", key] =
    /^vapid t=([^,]+), k=(\S+)$/.exec(headers["authorization"] ?? "") ?? [];
  if (key !== publicKey) throw new Error(`signed by ${key}`);
  const [head = "", body = "", signature = ""] = token.split(".");
  const point = Buffer.from(publicKey, "base64url");
  const jwk = {
    kty: "EC",
    crv: "P-256",
    x: point.subarray(1, 33).toString("base64url"),
    y: point.subarray(33).toString("base64url"),
  };
  const isSigned = verify(
    "sha256",
    Buffer.from(`${head}.${body}`),
    { key: createPublicKey({ key: jwk, format: "jwk" }), dsaEncoding: "ieee-p1363" },
    Buffer.from(signature, "base64url"),
  );
  if (!isSigned) throw new Error("the token is not signed by this key");
  return JSON.parse(Buffer.from(body, "base64url").toString()) as {
    aud: string;
    exp: number;
    sub: string;
  };
}
