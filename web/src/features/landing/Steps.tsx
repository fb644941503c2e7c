import type { ReactNode } from "react";
import styles from "./landing.module.css";

const STEPS = [
  [
    "Create an agent",
    "Sign in with a passkey or a wallet. Set a daily limit, a limit per payment, and who may be paid. You get one API key.",
  ],
  [
    "Send it USDC",
    "The agent has its own address. It needs no gas token: Purser sends its payments and pays the gas.",
  ],
  [
    "Let it pay",
    "It sends USDC or fetches a paid API with one call. Purser refuses a payment that breaks a rule before it signs anything.",
  ],
] as const;

export function Steps(): ReactNode {
  return (
    <section className={styles.section} aria-labelledby="steps">
      <h2 id="steps">How it works</h2>
      <ol className={styles.steps}>
        {STEPS.map(([title, text], index) => (
          <li key={title}>
            <span className={styles.number} aria-hidden="true">
              {index + 1}
            </span>
            <h3>{title}</h3>
            <p>{text}</p>
          </li>
        ))}
      </ol>
    </section>
  );
}
