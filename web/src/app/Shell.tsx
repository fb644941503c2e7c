import { lazy, type ReactNode, Suspense, useEffect, useState } from "react";
import { Link, NavLink, Outlet, ScrollRestoration, useLocation } from "react-router";
import {
  AgentsIcon,
  DeveloperIcon,
  FacilitatorIcon,
  MarketIcon,
  MerchantIcon,
  SettingsIcon,
  SpendingIcon,
} from "../components/icons.tsx";
import { Logo } from "../components/Logo.tsx";
import { ApprovalsLink } from "../features/approvals/ApprovalsLink.tsx";
import { NotificationsLink } from "../features/notifications/NotificationsLink.tsx";
import { StopEverything } from "../features/stop/StopEverything.tsx";
import { StoppedBanner } from "../features/stop/StoppedBanner.tsx";
import { WaitingLink } from "../features/teams/WaitingLink.tsx";
import { renewPush } from "../lib/push.ts";
import { loadPart } from "../lib/reachable.ts";
import { rightsOf } from "../shared/session/OwnerOnly.tsx";
import { useOwner, useSession } from "../shared/session/session-context.ts";
import { AccountGuard, SessionGate } from "../shared/session/SessionGate.tsx";
import { SessionProvider } from "../shared/session/SessionProvider.tsx";
import { SignInButton } from "../shared/session/SignInButton.tsx";
import { SigningHost } from "../shared/signing/SigningHost.tsx";
import { AccountMenu } from "./AccountMenu.tsx";
import { LiveUpdates } from "./LiveUpdates.tsx";
import { ServiceStatus } from "./ServiceStatus.tsx";
import styles from "./Shell.module.css";
import { Unreachable } from "./Unreachable.tsx";

const ActingFor = lazy(() => loadPart(() => import("../features/teams/ActingFor.tsx")));

/** `rest` of a label is only read aloud where there is no room for it. */
const PLACES: readonly {
  to: string;
  label: string;
  rest?: string;
  icon: typeof AgentsIcon;
}[] = [
  { to: "/agents", label: "Agents", icon: AgentsIcon },
  { to: "/spending", label: "Spending", icon: SpendingIcon },
  { to: "/marketplace", label: "Market", rest: "place", icon: MarketIcon },
  { to: "/facilitator", label: "Facilitator", icon: FacilitatorIcon },
  { to: "/merchant", label: "Merchant", icon: MerchantIcon },
  { to: "/developers", label: "Develop", rest: "ers", icon: DeveloperIcon },
  { to: "/settings", label: "Settings", icon: SettingsIcon },
];

export const OwnerArea = (): ReactNode => (
  <SessionProvider isPrivate>
    <Shell isPrivate>
      <SessionGate>
        <LiveUpdates />
        <RenewPush />
        <Outlet />
      </SessionGate>
    </Shell>
  </SessionProvider>
);

/** A device that was switched on stays on after a new sign-in. */
function RenewPush(): null {
  const { address } = useOwner();
  useEffect(() => {
    // Offline, or refused: the devices' page shows what is missing.
    void renewPush(address).catch(() => undefined);
  }, [address]);
  return null;
}

export const PublicArea = (): ReactNode => (
  <SessionProvider isPrivate={false}>
    <Shell isPrivate={false}>
      <AccountGuard>
        <Outlet />
      </AccountGuard>
    </Shell>
  </SessionProvider>
);

/** The consent page, which another program opened: it has no navigation that leads away. */
export const ConsentArea = (): ReactNode => (
  <SessionProvider isPrivate>
    <div className={styles.question}>
      <header className={styles.consent}>
        <Logo />
        <SignedInOwner />
      </header>
      <main id="content" tabIndex={-1}>
        <Unreachable />
        <SessionGate>
          <Outlet />
        </SessionGate>
      </main>
      <SigningHost />
    </div>
  </SessionProvider>
);

function SignedInOwner(): ReactNode {
  const { session } = useSession();
  const { pathname, search } = useLocation();
  return session && <AccountMenu session={session} after={pathname + search} />;
}

/**
 * React Router gives every page opened by URL the key "default"; with the path, one does not start at
 * another's scroll position.
 */
const scrollKey = ({ key, pathname }: { key: string; pathname: string }): string =>
  key === "default" ? pathname : key;

/** Restores the scroll position once the screen has loaded, since the placeholder is shorter. */
export const LoadedScreen = (): ReactNode => (
  <>
    <Outlet />
    <ScrollRestoration getKey={scrollKey} />
  </>
);

function Shell({ isPrivate, children }: { isPrivate: boolean; children: ReactNode }): ReactNode {
  const { session } = useSession();
  const [isStoppedHere, setStoppedHere] = useState(false);
  return (
    <div className={styles.shell}>
      <a className={styles.skip} href="#content">
        Skip to content
      </a>
      <header className={styles.side}>
        <Link
          to="/"
          className={session ? `${styles.home} ${styles.short}` : styles.home}
          aria-label="Purser, start page"
        >
          <Logo />
        </Link>
        <nav className={styles.nav} aria-label="Main">
          {PLACES.map(({ to, label, rest, icon: Icon }) => (
            <NavLink key={to} to={to} className={styles.place}>
              <Icon />
              <span>
                {label}
                {rest !== undefined && <span className={styles.rest}>{rest}</span>}
              </span>
            </NavLink>
          ))}
        </nav>
        <div className={styles.foot}>
          {session && (
            <div className={styles.news}>
              <div className={styles.onlyWide}>
                <WaitingLink session={session} />
              </div>
              <ApprovalsLink />
              <NotificationsLink />
            </div>
          )}
          {session && !session.stopped && rightsOf(session) !== "read" && (
            <StopEverything
              onStopped={() => {
                setStoppedHere(true);
              }}
            />
          )}
          <ServiceStatus />
          {session ? (
            <AccountMenu session={session} />
          ) : (
            session === null && !isPrivate && <SignInButton size="xs">Sign in</SignInButton>
          )}
        </div>
      </header>
      <main id="content" className={styles.main} tabIndex={-1}>
        <Unreachable />
        {session?.member && (
          <Suspense fallback={null}>
            <ActingFor session={session} />
          </Suspense>
        )}
        {session?.stopped && (
          <StoppedBanner
            owner={session.address}
            stopped={session.stopped}
            isOwnPress={isStoppedHere}
          />
        )}
        {children}
      </main>
      {session && <SigningHost />}
    </div>
  );
}
