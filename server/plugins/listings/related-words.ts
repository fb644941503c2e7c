/**
 * Words that sellers and buyers of APIs use for the same thing. Each line is one kind of data or service; a word may be in
 * several lines. Add a line for a whole kind, with the words of its trade. Never add names of sellers, or words because one
 * search failed. docs/decisions/0041-search.md says how much this list adds.
 */
export const RELATED_WORDS = `
weather, forecast, meteo, rain, precipitation, temperature, wind
forecast, prediction
climate, weather history, historical weather, normals
air quality, aqi, pollution, ozone
pollen, allergy, hay fever, allergen
marine, ocean, sea, wave, swell, surf
tide, high water, low water, ebb, tidal
earthquake, seismic, quake, tremor
geocode, geocoding, geocoder, lat lon, latitude longitude
reverse geocode, gps
route, routing, directions, navigation, driving, drive
isochrone, travel time, catchment
traffic, congestion, road incident, accidents
transit, public transport, bus, tram, metro, subway, underground
train, rail, railway
flight, plane, aircraft, airplane, aviation
fare, airfare, ticket, flight price
airport, iata, icao, aerodrome
hotel, accommodation, lodging, room, stay
poi, points of interest, nearby, places, shops, local business
restaurant, dining, cuisine
recipe, cook, cooking, ingredients
nutrition, calorie, vitamin, protein, diet, macronutrient
stock, share, equity, ticker, securities
ohlc, candle, bars, historical prices, backtest, end of day
fundamentals, financial statement, earnings, balance sheet, dividend, revenue
filing, sec, edgar, annual report, insider
exchange rate, fx, forex, currency, euro, eur, usd
interest rate, yield, bond, treasury, central bank
inflation, cpi, gdp, economic indicator, unemployment, macro
crypto, coin, token, bitcoin, btc, eth, ether, ethereum, cryptocurrency
swap, dex, slippage, liquidity, defi
gas, gas fee, base fee, transaction fee, priority fee
blockchain, chain, onchain, explorer, ledger
wallet, address, balance
nft, collectible, collection
wallet risk, screening, aml, scam
sanctions, ofac, watchlist, pep, politically exposed
identity verification, kyc, passport, id document, know your customer
company, business, firm, registry, corporation
owner, shareholder, director, beneficial owner, ownership
enrichment, enrich, profile, linkedin, crm
email, mail, mailbox, smtp
phone, telephone, msisdn, cell
sms, text message
one time password, otp, passcode
geoip, ip geolocation, locate ip, geolocate, asn
vpn, proxy, tor, anonymiser, anonymizer
fraud, fraudulent, bot, risk
malware, virus, antivirus, malicious, trojan
phishing, scam, link safety, url reputation, blocklist, blacklist
vulnerability, cve, exploit, advisory
package, dependency, npm, pypi, library
license, licence
code, source, snippet, github, repository
pull request, code review, diff, patch, merge request
domain, whois, registrar, domain name
dns, nameserver, mx, txt record
uptime, ping, status check
certificate, ssl, tls
page speed, lighthouse, core vitals, performance
screenshot, snapshot, capture, thumbnail, render
scrape, scraping, scraper, crawl, crawler, spider
markdown, clean text
extract, parse, parser, structured
web search, serp, search engine, google, bing, internet
news, headline, article, press, newspaper, newswire
sentiment, opinion, emotion, mood, tone, positive, negative
social, twitter, reddit, mention, trend, trending
influencer, creator, follower, youtube, instagram, channel
llm, gpt, language model, chat completion, completions, claude, inference, openai
research, investigation
embedding, embed, vectorizer, vectors, encode
vector database, vector store, nearest neighbour, similarity
summary, summarize, summarise, summarizer, tldr, shorten, digest
translate, translation, translator, localise
transcribe, transcription, speech to text, audio to text, speech recognition, captions, subtitles, stt, whisper
tts, text to speech, speech synthesis, voice
image, picture, photo, illustration
image generation, text to image, diffusion, dall e
background remover, upscale
object detection, image recognition, vision, tag photo, object recognition
ocr, optical character recognition, text recognition, scanned, receipt, invoice
pdf, document converter, convert word, office files
video, animation, clip
music, song, soundtrack, tracks, sound
moderation, toxicity, nsfw
paper, scholar, scientific, academic, literature, citation, doi
patent, prior art, invention
trademark, brand
case law, court, judgment, ruling, precedent, docket
clinical trial, medical, pubmed, disease, treatment
drug, medicine, medication, pharmacy, pharma
symptom, diagnosis, triage
score, match result, fixture, results, standings
football, soccer, basketball, sport, game
player, athlete, team, stats, statistics
odds, betting, bookmaker, sportsbook
prediction market, probability, election
movie, film, cinema, imdb
tv, television, series, episode, show
book, isbn, library, author
video game, games
price comparison, compare prices, retail prices, cheapest
barcode, ean, upc, gtin
review, rating
parcel, package, shipment, tracking, delivery
postage, shipping, freight, courier
address validation, postal address, validate address, address autocomplete
postcode, zip, zipcode, postal code
time zone, timezone, local time, utc
holiday, bank holiday, business day, working day
country, nation, population, demographics
satellite, sentinel, earth observation, imagery, ndvi
land, parcel, cadastre, cadastral, zoning
property, house, home, real estate
valuation, value, estimate
rent, rental, apartment, flat
job, vacancy, position, career, work
salary, wage, pay, compensation
electricity, power, grid, energy
carbon, co2, emission, greenhouse, footprint
fuel, petrol, gasoline, diesel
charging, charger, ev, electric car, charge point
vehicle, car, vin, automobile
ship, vessel, ais, maritime, container
random, randomness, dice, entropy
qr, qr code
sandbox, execute, run code, python, compute
gpu, compute
storage, upload, ipfs, pin, bucket, file storage
`
  .trim()
  .split("\n")
  .map((line) => line.split(", "));
