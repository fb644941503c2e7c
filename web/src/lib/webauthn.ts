/** Passkeys of this browser (WebAuthn). Nothing opens by itself: each function runs because the user pressed a button. */
import type {
  PublicKeyCredentialCreationOptionsJSON,
  PublicKeyCredentialRequestOptionsJSON,
} from "@simplewebauthn/browser";
import type { PasskeyOptions, ServiceInfo } from "./wire.ts";

/** A credential as the service expects it; browsers add members that it does not. */
export interface CredentialJson {
  id: string;
  rawId: string;
  type: string;
  response: Record<string, unknown>;
}

/** Why this page cannot use passkeys; `elsewhere`: the address where it can. */
export type Obstacle = { why: string; elsewhere?: string } | undefined;

export function passkeyObstacle({ passkeys }: Pick<ServiceInfo, "passkeys">): Obstacle {
  if (passkeys === null)
    return { why: "This service has a number as its address, and passkeys need a name." };
  const { origin, pathname } = globalThis.location;
  if (origin !== passkeys.url)
    return {
      why: "Passkeys work at another address of this service:",
      elsewhere: passkeys.url + pathname,
    };
  if (!("PublicKeyCredential" in globalThis)) return { why: "This browser has no passkeys." };
  return undefined;
}

/** The user canceled, or the device has no passkey for this site: browsers do not tell which. */
export class PasskeyCanceled extends Error {
  override readonly name = "PasskeyCanceled";
  /** As wallets report a refusal. */
  readonly code = 4001;
  constructor(cause: unknown) {
    super("You canceled, or this device has no passkey for this site.", { cause });
  }
}

const WHY: Readonly<Record<string, string>> = {
  InvalidStateError: "This device has a passkey for this account already.",
  SecurityError: "The browser does not use passkeys at this address.",
  NotSupportedError: "This device cannot make a passkey of the kind that Purser needs.",
  ConstraintError:
    "This device cannot check that it is you. Set a screen lock, a PIN or a fingerprint, then try again.",
};

function passkeyError(error: unknown): Error {
  const { name, cause } = error as { name?: string; cause?: { name?: string } };
  const names = [name, cause?.name];
  if (names.includes("NotAllowedError") || names.includes("AbortError"))
    return new PasskeyCanceled(error);
  const why = names.map((one) => WHY[one ?? ""]).find((one) => one !== undefined);
  return new Error(why ?? "The browser did not use a passkey.", { cause: error });
}

/** Makes a passkey. `name` is what the device calls it. */
export async function createPasskey(
  options: PasskeyOptions["options"],
  name: string,
): Promise<CredentialJson> {
  const { startRegistration } = await import("@simplewebauthn/browser");
  const given = options as unknown as PublicKeyCredentialCreationOptionsJSON;
  const user = { ...given.user, name, displayName: name };
  try {
    const { id, rawId, type, response } = await startRegistration({
      optionsJSON: { ...given, user },
    });
    const { attestationObject, clientDataJSON, transports } = response;
    return { id, rawId, type, response: { attestationObject, clientDataJSON, transports } };
  } catch (error) {
    throw passkeyError(error);
  }
}

/** The answer of a passkey that the user chose. */
export async function askPasskey(
  options: PublicKeyCredentialRequestOptionsJSON,
): Promise<CredentialJson> {
  const { startAuthentication } = await import("@simplewebauthn/browser");
  try {
    const { id, rawId, type, response } = await startAuthentication({ optionsJSON: options });
    const { authenticatorData, clientDataJSON, signature } = response;
    return { id, rawId, type, response: { authenticatorData, clientDataJSON, signature } };
  } catch (error) {
    throw passkeyError(error);
  }
}

export const requestIn = ({ options }: PasskeyOptions): PublicKeyCredentialRequestOptionsJSON =>
  options as unknown as PublicKeyCredentialRequestOptionsJSON;
