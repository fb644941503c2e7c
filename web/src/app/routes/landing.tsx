import type { ReactNode } from "react";
import { Link } from "react-router";
import { AnchorButton, LinkButton } from "../../components/Button.tsx";
import { Logo } from "../../components/Logo.tsx";
import { useDocumentTitle, useTitleFocus } from "../../components/PageHeader.tsx";
import { useInfo } from "../../shared/info.ts";
import { DemoCall } from "../../features/landing/DemoCall.tsx";
import { Ledger } from "../../features/landing/Ledger.tsx";
import { LiveFacts } from "../../features/landing/LiveFacts.tsx";
import { Steps } from "../../features/landing/Steps.tsx";
import styles from "./landing.module.css";

export default function LandingScreen(): ReactNode {
  useDocumentTitle("A wallet with a limit, for your agent");
  useTitleFocus();
  const info = useInfo();
  return (
    <div className={styles.page}>
      <header className={styles.top}>
        <Logo />
        <nav className={styles.nav} aria-label="Main">
          <Link to="/marketplace">Marketplace</Link>
          <Link to="/facilitator">Facilitator</Link>
          <Link to="/developers">Developers</Link>
          <LinkButton to="/agents" size="small">
            Open the app
          </LinkButton>
        </nav>
      </header>
      <main>
        <section className={styles.hero}>
          <div className={styles.pitch}>
            <h1 id="page-title" tabIndex={-1}>
              Give your agent a wallet with a limit it cannot exceed.
            </h1>
            <p>
              Purser gives an AI agent its own USDC wallet with limits that its owner sets. It also
              settles x402 payments for any API.
            </p>
            <div className={styles.actions}>
              <LinkButton to="/agents" variant="primary" size="large">
                {info?.localWorld === true
                  ? "Try it with the demo wallet"
                  : "Sign in with your wallet"}
              </LinkButton>
              <AnchorButton href="/docs/" size="large">
                Read the documentation
              </AnchorButton>
            </div>
          </div>
          <Ledger />
        </section>
        <LiveFacts />
        <Steps />
        <DemoCall />
      </main>
      <footer className={styles.foot}>
        <span>Purser {info?.version}</span>
        <nav aria-label="Documents">
          <a href="/docs/">Documentation</a>
          <a href="/openapi.json">OpenAPI</a>
          <a href="/skill.md">Skill file for agents</a>
          <a href="/llms.txt">llms.txt</a>
        </nav>
      </footer>
    </div>
  );
}
