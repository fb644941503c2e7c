// Devices that hold passkeys: the virtual authenticators of Chromium.
import type { CDPSession, Page } from "playwright-core";

/** The devices that a browser can ask: this one, and a security key. Each answers while it is switched on. */
export class Devices {
  readonly #session: CDPSession;
  #ids: Record<"own" | "spare", string> = { own: "", spare: "" };

  private constructor(session: CDPSession) {
    this.#session = session;
  }

  static async of(page: Page): Promise<Devices> {
    const devices = new Devices(await page.context().newCDPSession(page));
    await devices.#session.send("WebAuthn.enable", { enableUI: false });
    devices.#ids = { own: await devices.#add("internal"), spare: await devices.#add("usb") };
    await devices.use("own");
    return devices;
  }

  async #add(transport: "internal" | "usb"): Promise<string> {
    const { authenticatorId } = await this.#session.send("WebAuthn.addVirtualAuthenticator", {
      options: {
        protocol: "ctap2",
        transport,
        hasResidentKey: true,
        hasUserVerification: true,
        isUserVerified: true,
        automaticPresenceSimulation: false,
      },
    });
    return authenticatorId;
  }

  /** The other one does not answer. */
  async use(name: "own" | "spare"): Promise<void> {
    for (const [other, authenticatorId] of Object.entries(this.#ids))
      await this.#session.send("WebAuthn.setAutomaticPresenceSimulation", {
        authenticatorId,
        enabled: other === name,
      });
  }

  /** False: the person fails the fingerprint, the face or the PIN. */
  async verifies(isUserVerified: boolean): Promise<void> {
    for (const authenticatorId of Object.values(this.#ids))
      await this.#session.send("WebAuthn.setUserVerified", { authenticatorId, isUserVerified });
  }
}

/** Counts the prompts of passkeys: what the page asks the browser for. */
export async function countPrompts(page: Page): Promise<() => Promise<number>> {
  await page.addInitScript(() => {
    const counted = globalThis as unknown as { prompts: number };
    counted.prompts = 0;
    for (const name of ["get", "create"] as const) {
      const real = navigator.credentials[name].bind(navigator.credentials);
      navigator.credentials[name] = (options?: never) => {
        counted.prompts += 1;
        return real(options);
      };
    }
  });
  return () => page.evaluate(() => (globalThis as unknown as { prompts: number }).prompts);
}
