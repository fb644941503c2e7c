import { Button } from "@mantine/core";
import type { ReactNode } from "react";
import { Link } from "react-router";
import { Logo } from "../../components/Logo.tsx";
import { useDocumentTitle, useTitleFocus } from "../../components/PageHeader.tsx";
import { DemoCall } from "../../features/landing/DemoCall.tsx";
import { Ledger } from "../../features/landing/Ledger.tsx";
import { LiveFacts } from "../../features/landing/LiveFacts.tsx";
import { Steps } from "../../features/landing/Steps.tsx";
import { useInfo } from "../../shared/info.ts";
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
          <Button component={Link} to="/agents" size="xs">
            Open the app
          </Button>
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
              <Button component={Link} to="/agents" variant="filled" size="lg">
                {info?.localWorld === true ? "Try it now" : "Sign in with a passkey or a wallet"}
              </Button>
              <Button component="a" href="/docs/" size="lg">
                Read the documentation
              </Button>
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
